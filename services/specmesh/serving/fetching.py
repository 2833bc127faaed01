"""Fetches what an issuer publishes at a URL, within a time and a size."""

from __future__ import annotations

import io
import socket
import time
import urllib.request
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import (
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

from specmesh.serving.loopback import is_loopback

MAX_BYTES = 2**20
"""The size of a body above which it is refused. Sets of keys have some kilobytes."""
_HEADERS = {"User-Agent": "specmesh"}  # some issuers refuse urllib's default


def fetch(url: str, timeout_s: float) -> bytes:
    """Return the body of a response. Connecting and the response have ``timeout_s`` each.

    Raises OSError and HTTPException.
    """
    request = Request(url, headers=_HEADERS)  # noqa: S310 - settings refuse other schemes
    try:
        with _opener(url).open(request, timeout=timeout_s) as response:
            body: bytes = response.read(MAX_BYTES + 1)
    except HTTPError as error:
        error.close()  # it is the response, too
        raise
    if len(body) > MAX_BYTES:
        raise OSError(f"more than {MAX_BYTES} bytes")
    return body


def _opener(url: str) -> OpenerDirector:
    """Return what opens ``url``, through the proxy of the environment if it is beyond loopback.

    urllib would ask that proxy for this machine's URLs, too, which may be in plain text because
    nobody else is on the way to them.
    """
    proxies = ProxyHandler({} if is_loopback(urlsplit(url).hostname or "") else None)
    return urllib.request.build_opener(proxies, _NoRedirects, _PlainOpener, _TlsOpener)


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect, so that keys come from nowhere but the URL that the operator chose."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Return no request, by which the redirect becomes an error."""


class _TimedSocket(io.RawIOBase):
    """Reads from a socket, whose timeout is for all reads together.

    The socket's own timeout is for each read, so that a server that sends a byte now and then would
    hold its reader for ever.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._reads = sock.makefile("rb", buffering=0)
        self._until = time.monotonic() + (sock.gettimeout() or 0.0)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read what is there, or wait for it. Raises TimeoutError."""
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left_s)
        return self._reads.readinto(buffer)

    def close(self) -> None:
        """Close the socket, if nobody else has it open."""
        self._reads.close()
        super().close()


class _TimedResponse(HTTPResponse):
    """A response whose headers and body together have the socket's timeout."""

    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self.fp.close()
        self.fp = io.BufferedReader(_TimedSocket(sock))


class _TimedConnection(HTTPConnection):
    """A connection whose responses are timed as a whole."""

    response_class = _TimedResponse


class _TimedTlsConnection(HTTPSConnection):
    """The same over TLS, whose handshake Python times as a whole."""

    response_class = _TimedResponse


class _PlainOpener(HTTPHandler):
    def http_open(self, request: Request) -> HTTPResponse:
        """Return the response to a request in plain text."""
        return self.do_open(_TimedConnection, request)


class _TlsOpener(HTTPSHandler):
    def https_open(self, request: Request) -> HTTPResponse:
        """Return the response to a request over TLS."""
        return self.do_open(_TimedTlsConnection, request)

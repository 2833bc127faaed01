"""Fetches what an issuer publishes at a URL."""

from __future__ import annotations

import urllib.request
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request

from specmesh.serving.loopback import is_loopback

_HEADERS = {"User-Agent": "specmesh"}  # some issuers refuse urllib's default


def fetch(url: str, timeout_s: float) -> bytes:
    """Return the body of a response. Raises OSError and HTTPException."""
    request = Request(url, headers=_HEADERS)  # noqa: S310 - settings refuse other schemes
    try:
        with _opener(url).open(request, timeout=timeout_s) as response:
            body: bytes = response.read()
    except HTTPError as error:
        error.close()  # it is the response, too
        raise
    return body


def _opener(url: str) -> OpenerDirector:
    """Return what opens ``url``, through the proxy of the environment if it is beyond loopback.

    urllib would ask that proxy for this machine's URLs, too, which may be in plain text because
    nobody else is on the way to them.
    """
    proxies = ProxyHandler({} if is_loopback(urlsplit(url).hostname or "") else None)
    return urllib.request.build_opener(proxies, _NoRedirects)


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect, so that keys come from nowhere but the URL that the operator chose."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Return no request, by which the redirect becomes an error."""

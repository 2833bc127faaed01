"""TLS of HTTP servers, from files that are reloaded when they change."""

from __future__ import annotations

import ssl
from typing import Self

from specmesh.serving.identity.certificates import TlsFiles, watched_certificate
from specmesh.serving.identity.watched import UnusableFile


class RenewedContext(ssl.SSLContext):
    """The TLS context of a port: each new connection uses the current ``files``.

    It only hands connections to a context of those. A session can be resumed in the context alone
    in which it began, so that no client stays known by a CA that has gone from the files.

    Raises ``UnusableFile``.
    """

    def __new__(cls, files: TlsFiles, *, require_clients: bool) -> Self:  # noqa: ARG004
        """Return a context of its own, which no connection uses."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, files: TlsFiles, *, require_clients: bool) -> None:
        self._files = files
        self._requires_clients = require_clients
        self._certificate = watched_certificate(files, self._load)
        self._certificate.current()

    def _load(self) -> None:
        try:
            self._newest = _context(self._files, require_clients=self._requires_clients)
        except ssl.SSLError as error:
            files = self._files
            raise UnusableFile(
                f"TLS can't use {files.options}-cert {files.cert}: {error}"
            ) from None

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Return the TLS of a new connection; asyncio asks for it."""
        self._certificate.current()
        return self._newest.wrap_bio(incoming, outgoing, server_side, server_hostname, session)


def _context(files: TlsFiles, *, require_clients: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    if require_clients and files.ca is not None:
        context.load_verify_locations(files.ca)
        context.verify_mode = ssl.CERT_REQUIRED
        # A session that is resumed again and again would outlive its client's certificate. Those of
        # TLS 1.2, which are not renewed, end within two hours.
        context.num_tickets = 0
    return context

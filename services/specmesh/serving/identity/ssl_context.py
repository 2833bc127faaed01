"""TLS of HTTP servers, from files that are reloaded when they change."""

from __future__ import annotations

import ssl

from specmesh.serving.identity.certificates import TlsFiles, watched_certificate


def renewed_context(files: TlsFiles, *, require_clients: bool) -> ssl.SSLContext:
    """Return the TLS context of a port: each new connection uses the current ``files``.

    Raises ``UnusableFile`` and SSLError.
    """
    certificate = watched_certificate(files)
    known = certificate.current()
    context = _context(files, require_clients=require_clients)
    newest = context

    def on_hello(connection: ssl.SSLObject, *_: object) -> None:
        nonlocal known, newest
        if (now := certificate.current()) is not known:
            newest = _context(files, require_clients=require_clients)
            known = now
        connection.context = newest

    context.sni_callback = on_hello
    return context


def _context(files: TlsFiles, *, require_clients: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    if require_clients and files.ca is not None:
        context.load_verify_locations(files.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context

"""The identity in a client's TLS certificate."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.requests import Request

from specmesh.gateway.errors import ApiError
from specmesh.serving.identity.certificates import Certificate
from specmesh.serving.identity.roles import role_of, trust_domain_of
from specmesh.serving.identity.watched import Watched


class TellsPeer(asyncio.Protocol):
    """Mixin for uvicorn's protocols that sets ``request.state.peer`` to the client's identity."""

    app_state: dict[str, object]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Read the identity from the client's certificate."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, "peer": _identity(transport)}


class PeerCheck:
    """Refuses callers whose certificate is of another trust domain than the gateway's own
    ``certificate``. A certificate without a trust domain, of a program outside any mesh, passes.

    Raises ``UnusableFile``.
    """

    def __init__(self, certificate: Watched[Certificate] | None) -> None:
        self._certificate = certificate
        if certificate is not None:
            certificate.current()  # once read, it stays in use even if the files become unusable

    def check(self, request: Request) -> None:
        """Raise ``ApiError`` 403 if the caller's trust domain differs."""
        if self._certificate is None:
            return
        theirs, ours = trust_domain_of(request.state.peer), self._certificate.current().trust_domain
        if theirs and ours and theirs != ours:
            message = f"the certificate's trust domain is {theirs}, but this mesh's is {ours}"
            raise ApiError(HTTPStatus.FORBIDDEN, message, code="wrong_trust_domain")


def _identity(transport: asyncio.BaseTransport) -> str:
    """Return the specmesh SPIFFE id in the peer's certificate; empty if it has none."""
    shown = transport.get_extra_info("peercert") or {}
    uris = [value for kind, value in shown.get("subjectAltName", ()) if kind == "URI"]
    return str(uris[0]) if len(uris) == 1 and role_of(uris[0]) else ""

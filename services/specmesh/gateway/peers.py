"""Who connected, by the certificate that the door asked for."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.requests import Request

from specmesh.gateway.errors import ApiError
from specmesh.serving.identity.certificates import Certificate
from specmesh.serving.identity.roles import role_of, trust_domain_of
from specmesh.serving.identity.watched import Watched


class TellsPeer(asyncio.Protocol):
    """Mixin for uvicorn's protocols: requests know who sent them, as ``request.state.peer``."""

    app_state: dict[str, object]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Look at the certificate."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, "peer": _identity(transport)}


class PeerCheck:
    """Refuses callers whose certificate is of another trust domain than ``certificate``, that of
    the door. Programs that are no part of a mesh have none, and need none.

    Raises ``UnusableFile``.
    """

    def __init__(self, certificate: Watched[Certificate] | None) -> None:
        self._certificate = certificate
        if certificate is not None:
            certificate.current()  # what is unusable later leaves this in place

    def check(self, request: Request) -> None:
        """Raise ``ApiError`` 403."""
        if self._certificate is None:
            return
        theirs, ours = trust_domain_of(request.state.peer), self._certificate.current().trust_domain
        if theirs and ours and theirs != ours:
            message = f"the certificate is of the trust domain {theirs}, this mesh is {ours}"
            raise ApiError(HTTPStatus.FORBIDDEN, message, code="wrong_trust_domain")


def _identity(transport: asyncio.BaseTransport) -> str:
    """The SPIFFE id of ours in the peer's certificate; empty without one."""
    shown = transport.get_extra_info("peercert") or {}
    uris = [value for kind, value in shown.get("subjectAltName", ()) if kind == "URI"]
    return str(uris[0]) if len(uris) == 1 and role_of(uris[0]) else ""

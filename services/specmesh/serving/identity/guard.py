"""Lets callers in: by the role of their certificate, and by their bearer token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

from specmesh.serving.caller import identified
from specmesh.serving.errors import PermissionDenied, Unauthenticated
from specmesh.serving.identity.bearer import Bearer
from specmesh.serving.identity.roles import may_call, role_of
from specmesh.serving.interceptors import Context, ObservedRequest

AUTHORIZATION = "authorization"


class Guard:
    """Lets a call in if its certificate's role and its token allow it, and names its caller for
    ``specmesh.serving.caller``.

    ``by_certificate``: callers have certificates, since the port lets in nobody else. With a
    ``bearer`` the token is who calls, else the certificate.
    """

    def __init__(self, *, by_certificate: bool, bearer: Bearer | None) -> None:
        self._by_certificate = by_certificate
        self._bearer = bearer

    @asynccontextmanager
    async def admit(self, request: ObservedRequest) -> AsyncIterator[None]:
        """Answer on behalf of the caller. Raises ``PermissionDenied`` for a wrong role and
        ``Unauthenticated`` for no valid token."""
        identity = ""
        if self._by_certificate:
            identity = _let_in(request)
        if self._bearer is not None:
            identity = self._bearer.identify(_authorization(request.context))
        with identified(identity):
            yield


def _let_in(request: ObservedRequest) -> str:
    """The identity in the caller's certificate, whose role may call the method."""
    properties = request.context.auth_context()
    identity = _only(properties, "peer_spiffe_id")
    role = role_of(identity)
    if not may_call(role, request.method):
        bearer = f"a certificate of the role {role}" if role else "a certificate without a role"
        raise PermissionDenied(
            "WRONG_ROLE",
            f"{bearer} may not call {request.method}",
            {"role": role, "method": request.method},
        )
    return identity


def _only(properties: Mapping[str, Iterable[bytes]], name: str) -> str:
    """The value of a property of the connection; empty if there is none, or several."""
    values = [*properties.get(name, ())]
    return values[0].decode() if len(values) == 1 else ""


def _authorization(context: Context) -> str | None:
    metadata = context.invocation_metadata() or ()
    given = [value for key, value in metadata if key == AUTHORIZATION]
    if len(given) > 1:
        raise Unauthenticated("UNAUTHENTICATED", "the call has more than one authorization")
    return str(given[0]) if given else None

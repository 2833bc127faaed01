"""Lets callers in: by the role of their certificate, and by their bearer token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

from specmesh.serving.caller import identified
from specmesh.serving.errors import PermissionDenied, Unauthenticated
from specmesh.serving.identity.bearer import Bearer
from specmesh.serving.identity.on_behalf import identity_behind, named_caller
from specmesh.serving.identity.roles import GATEWAY, Proven, may_call, role_of
from specmesh.serving.interceptors import Context, ObservedRequest

AUTHORIZATION = "authorization"


class Guard:
    """Lets a call in if its certificate's role and its token allow it, and names its caller for
    ``specmesh.serving.caller``.

    ``by_certificate``: callers have certificates, since the port lets in nobody else. With a
    ``bearer`` the token is who calls, else the certificate. Who is a gateway by either may name
    somebody else for whom it calls; where neither is asked for, whoever calls may if
    ``believes_anybody``, else nobody.
    """

    def __init__(
        self, *, by_certificate: bool, bearer: Bearer | None, believes_anybody: bool = False
    ) -> None:
        self._by_certificate = by_certificate
        self._bearer = bearer
        self._believes_anybody = believes_anybody

    @asynccontextmanager
    async def admit(self, request: ObservedRequest) -> AsyncIterator[None]:
        """Answer on behalf of the caller. Raises ``PermissionDenied`` for a wrong role,
        ``Unauthenticated`` for no valid token and ``InvalidField`` for no valid name."""
        proven = []
        if self._by_certificate:
            proven.append(_let_in(request))
        if self._bearer is not None:
            proven.append(self._bearer.identify(_authorization(request.context)))
        with identified(self._identity(proven, request.context)):
            yield

    def _identity(self, proven: Sequence[Proven], context: Context) -> str:
        """Who calls, or for whom a gateway does; the last of what is ``proven`` counts."""
        own = proven[-1].identity if proven else ""
        caller = named_caller(context.invocation_metadata() or ())
        if caller is None:
            return own
        is_gateway = any(each.role == GATEWAY for each in proven)
        if not (is_gateway if proven else self._believes_anybody):
            raise PermissionDenied(
                "NOT_A_GATEWAY",
                "only a gateway may say for whom it calls: one with a certificate of that role, or "
                "a token that is listed with it",
            )
        return identity_behind(own, caller)


def _let_in(request: ObservedRequest) -> Proven:
    """Who the caller's certificate says it is: one of a role that may call the method."""
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
    return Proven(identity, role)


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

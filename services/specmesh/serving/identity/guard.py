"""Lets callers in: by the role of their certificate, and by their bearer token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

from specmesh.serving.caller import identified
from specmesh.serving.errors import PermissionDeniedStatus, UnauthenticatedStatus
from specmesh.serving.identity.bearer import Bearer
from specmesh.serving.identity.certificates import Certificate
from specmesh.serving.identity.on_behalf import identity_behind, named_caller
from specmesh.serving.identity.roles import GATEWAY, Proven, may_call, role_of, trust_domain_of
from specmesh.serving.identity.watched import Watched
from specmesh.serving.rpc.interceptors import Context, ObservedRequest

AUTHORIZATION = "authorization"


class Guard:
    """Lets a call in if its certificate's role and its token allow it, and names its caller for
    ``specmesh.serving.caller``.

    ``certificate`` is the port's own if callers must have one as well, in its trust domain; where
    it names none, in any. With a
    ``bearer`` the token is who calls, else the certificate. Who is a gateway by either may name
    somebody else for whom it calls; where neither is asked for, whoever calls may if
    ``believes_anybody``, else nobody.
    """

    def __init__(
        self,
        *,
        certificate: Watched[Certificate] | None,
        bearer: Bearer | None,
        believes_anybody: bool = False,
    ) -> None:
        self._certificate = certificate
        self._bearer = bearer
        self._believes_anybody = believes_anybody

    @asynccontextmanager
    async def admit(self, request: ObservedRequest) -> AsyncIterator[None]:
        """Answer on behalf of the caller. Raises ``PermissionDeniedStatus`` for a wrong role or
        trust domain, ``UnauthenticatedStatus`` for no valid token and ``InvalidField`` for no valid
        name."""
        proven = []
        if self._certificate is not None:
            proven.append(_let_in(request, self._certificate.current().trust_domain))
        if self._bearer is not None:
            proven.append(await self._bearer.identify(_authorization(request.context)))
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
            raise PermissionDeniedStatus(
                "NOT_A_GATEWAY",
                "only a gateway may say for whom it calls: one with a certificate of that role, or "
                "a token that is listed with it",
            )
        return identity_behind(own, caller)


def _let_in(request: ObservedRequest, trust_domain: str) -> Proven:
    """Who the caller's certificate says it is: one of a role that may call the method, of
    ``trust_domain`` if that is not empty."""
    properties = request.context.auth_context()
    identity = _only(properties, "peer_spiffe_id")
    role = role_of(identity)
    if not may_call(role, request.method):
        bearer = f"a certificate of the role {role}" if role else "a certificate without a role"
        raise PermissionDeniedStatus(
            "WRONG_ROLE",
            f"{bearer} may not call {request.method}",
            {"role": role, "method": request.method},
        )
    callers = trust_domain_of(identity)
    if trust_domain not in {"", callers}:
        raise PermissionDeniedStatus(
            "WRONG_TRUST_DOMAIN",
            f"the certificate is of the trust domain {callers}, this mesh is {trust_domain}",
            {"trust_domain": callers, "expected": trust_domain},
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
        raise UnauthenticatedStatus("UNAUTHENTICATED", "the call has more than one authorization")
    return str(given[0]) if given else None

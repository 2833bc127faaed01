"""Admission of calls by the role of the caller's certificate and by its bearer token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

from specmesh.serving.caller import identified
from specmesh.serving.errors import PermissionDeniedStatus, UnauthenticatedStatus
from specmesh.serving.identity.bearer import Bearer
from specmesh.serving.identity.certificates import Certificate
from specmesh.serving.identity.on_behalf import identity_behind, named_caller
from specmesh.serving.identity.roles import GATEWAY, Proven, may_call, role_of, trust_domain_of
from specmesh.serving.identity.watched import Watched
from specmesh.serving.rpc.observed_request import Context, ObservedRequest

AUTHORIZATION = "authorization"

Metadata: TypeAlias = Iterable[tuple[str, str | bytes]]


class Guard:
    """Admits a call if its certificate's role and its token allow it, and sets its caller for
    ``specmesh.serving.caller``.

    ``certificate`` is the port's own if callers need one, too: of its trust domain, or of any if it
    names none. With a ``bearer`` the token identifies the caller, else the certificate. A caller
    that is a gateway by either may name another one on whose behalf it calls; if neither is
    required, every caller may do so if ``believes_anybody``, else none.
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

    async def screen(self, metadata: Metadata | None) -> None:
        """Raise ``UnauthenticatedStatus`` if a call with this ``metadata`` lacks a valid token."""
        if self._bearer is not None:
            await self._bearer.identify(_authorization(metadata))

    @asynccontextmanager
    async def admit(self, request: ObservedRequest) -> AsyncIterator[None]:
        """Answer the call on behalf of its caller. Raises ``PermissionDeniedStatus`` for a wrong
        role or trust domain, ``UnauthenticatedStatus`` without a valid token, and ``InvalidField``
        for an invalid name of the caller behind a gateway."""
        proven = []
        if self._certificate is not None:
            proven.append(_let_in(request, self._certificate.current().trust_domain))
        if self._bearer is not None:
            metadata = request.context.invocation_metadata()
            proven.append(await self._bearer.identify(_authorization(metadata)))
        with identified(self._identity(proven, request.context)):
            yield

    def _identity(self, proven: Sequence[Proven], context: Context) -> str:
        """Return the identity of the caller, or of the one on whose behalf a gateway calls; the
        last element of ``proven`` counts."""
        own = proven[-1].identity if proven else ""
        caller = named_caller(context.invocation_metadata() or ())
        if caller is None:
            return own
        is_gateway = any(each.role == GATEWAY for each in proven)
        if not (is_gateway if proven else self._believes_anybody):
            raise PermissionDeniedStatus(
                "NOT_A_GATEWAY",
                "only a gateway may name the caller on whose behalf it calls: it needs a "
                "certificate or a listed token of the role gateway",
            )
        return identity_behind(own, caller)


def _let_in(request: ObservedRequest, trust_domain: str) -> Proven:
    """Return the identity and role in the caller's certificate. Raises ``PermissionDeniedStatus``
    if the role may not call the method, or if the trust domain differs from a ``trust_domain``
    that is not empty."""
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
            f"the certificate's trust domain is {callers}, but this mesh's is {trust_domain}",
            {"trust_domain": callers, "expected": trust_domain},
        )
    return Proven(identity, role)


def _only(properties: Mapping[str, Iterable[bytes]], name: str) -> str:
    """Return the value of a property of the connection; empty unless it has exactly one."""
    values = [*properties.get(name, ())]
    return values[0].decode() if len(values) == 1 else ""


def _authorization(metadata: Metadata | None) -> str | None:
    given = [value for key, value in metadata or () if key == AUTHORIZATION]
    if len(given) > 1:
        raise UnauthenticatedStatus("UNAUTHENTICATED", "the call has more than one authorization")
    return str(given[0]) if given else None

"""Who sent a bearer token.

The orchestrator finds it in a call's metadata, a gateway in a request's header ``Authorization``.
"""

from __future__ import annotations

from specmesh.serving.errors import UnauthenticatedStatus
from specmesh.serving.identity.jwts import JsonWebTokens, unauthenticated
from specmesh.serving.identity.roles import CLIENT, Proven
from specmesh.serving.identity.tokens import StaticTokens

SCHEME = "bearer"


class Bearer:
    """Tells who a caller is by its token."""

    def __init__(self, tokens: StaticTokens | None, jwts: JsonWebTokens | None) -> None:
        self._tokens = tokens
        self._jwts = jwts

    async def open(self) -> None:
        """Read the files, and fetch what is at a URL. Raises ``UnusableFile``."""
        if self._tokens is not None:
            self._tokens.load()
        if self._jwts is not None:
            await self._jwts.open()

    async def close(self) -> None:
        """Let go of what ``open`` took."""
        if self._jwts is not None:
            await self._jwts.close()

    async def identify(self, authorization: str | None) -> Proven:
        """Who sent ``authorization``, "Bearer TOKEN": the identity is ``token:NAME`` or
        ``jwt:ISSUER|SUBJECT``. Raises ``UnauthenticatedStatus``."""
        if authorization is None:
            raise UnauthenticatedStatus("UNAUTHENTICATED", "the call has no bearer token")
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != SCHEME:
            raise UnauthenticatedStatus("UNAUTHENTICATED", "the authorization is no bearer token")
        if not token.isascii():
            raise unauthenticated("it has characters that no token has")
        if self._tokens is not None and (listed := self._tokens.identify(token)):
            return listed
        if self._jwts is not None:
            return Proven(await self._jwts.identify(token), CLIENT)
        raise unauthenticated("it is not known here")

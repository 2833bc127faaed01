"""Authentication by bearer tokens.

Orchestrators find the token in a call's metadata, gateways in the ``Authorization`` header.
"""

from __future__ import annotations

from specmesh.serving.errors import UnauthenticatedStatus
from specmesh.serving.identity.jwts import JsonWebTokens, unauthenticated
from specmesh.serving.identity.roles import CLIENT, Proven
from specmesh.serving.identity.tokens import StaticTokens

SCHEME = "bearer"


class Bearer:
    """Authenticates callers by static tokens, JSON Web Tokens, or both."""

    def __init__(self, tokens: StaticTokens | None, jwts: JsonWebTokens | None) -> None:
        self._tokens = tokens
        self._jwts = jwts

    async def open(self) -> None:
        """Read the tokens and keys, and fetch keys from a URL. Raises ``UnusableFile``."""
        if self._tokens is not None:
            self._tokens.load()
        if self._jwts is not None:
            await self._jwts.open()

    async def close(self) -> None:
        """Release what ``open`` acquired."""
        if self._jwts is not None:
            await self._jwts.close()

    async def identify(self, authorization: str | None) -> Proven:
        """Return the sender of ``authorization``, "Bearer TOKEN". Its identity is ``token:NAME`` or
        ``jwt:ISSUER|SUBJECT``. Raises ``UnauthenticatedStatus``."""
        if authorization is None:
            raise UnauthenticatedStatus("UNAUTHENTICATED", "the call has no bearer token")
        scheme, token = read_authorization(authorization)
        if scheme != SCHEME:
            message = "the authorization is not a bearer token"
            raise UnauthenticatedStatus("UNAUTHENTICATED", message)
        if not token.isascii():
            raise unauthenticated("it has characters that no token may have")
        if self._tokens is not None and (listed := self._tokens.identify(token)):
            return listed
        if self._jwts is not None:
            return Proven(await self._jwts.identify(token), CLIENT)
        raise unauthenticated("it is not known here")


def read_authorization(authorization: str) -> tuple[str, str]:
    """Return the scheme in lower case and what follows it, behind one space or more (RFC 9110,
    section 11.4)."""
    scheme, _, rest = authorization.partition(" ")
    return scheme.lower(), rest.strip(" ")

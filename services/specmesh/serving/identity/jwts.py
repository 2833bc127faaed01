"""Verification of JSON Web Tokens (RFC 7519) of one issuer."""

from __future__ import annotations

import jwt

from specmesh.serving.errors import UnauthenticatedStatus
from specmesh.serving.identity.keys import IssuerKey, KeySource
from specmesh.serving.identity.on_behalf import MAX_CALLER_BYTES

LEEWAY_SECONDS = 30
"""The tolerated difference between the issuer's clock and ours."""

MAX_SUBJECT_CHARS = 512
"""Bounds identities, which are counted and logged. OpenID Connect allows 255."""


class JsonWebTokens:
    """Tokens for ``audience`` that ``issuer`` has signed with one of ``keys``."""

    def __init__(self, keys: KeySource, issuer: str, audience: str) -> None:
        self._keys = keys
        self._issuer = issuer
        self._audience = audience

    async def open(self) -> None:
        """Return once there are keys. Raises ``UnusableFile``."""
        await self._keys.open()

    async def close(self) -> None:
        """Release what ``open`` acquired."""
        await self._keys.close()

    async def identify(self, token: str) -> str:
        """Verify a token and return its identity, ``jwt:ISSUER|SUBJECT``. Raises
        ``UnauthenticatedStatus``."""
        try:
            key = await self._key(token)
            claims = jwt.decode(
                token,
                key.key,
                algorithms=sorted(key.algorithms),
                issuer=self._issuer,
                audience=self._audience,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError as error:
            raise unauthenticated(_fault(error)) from None
        if len(claims["sub"]) > MAX_SUBJECT_CHARS:
            raise unauthenticated(f"its subject has more than {MAX_SUBJECT_CHARS} characters")
        identity = f"jwt:{claims['iss']}|{claims['sub']}"
        try:
            num_bytes = len(identity.encode())
        except UnicodeEncodeError:  # JSON can write half of a surrogate pair
            raise unauthenticated("its subject is not Unicode text") from None
        if num_bytes > MAX_CALLER_BYTES:
            message = f"its issuer and subject have more than {MAX_CALLER_BYTES} bytes in UTF-8"
            raise unauthenticated(message)
        return identity

    async def _key(self, token: str) -> IssuerKey:
        key = await self._keys.find(jwt.get_unverified_header(token).get("kid"))
        if key is None:
            raise unauthenticated("it is signed with an unknown key")
        return key


def unauthenticated(fault: str) -> UnauthenticatedStatus:
    """Return the error for a token with a fault."""
    return UnauthenticatedStatus("UNAUTHENTICATED", f"the bearer token is not valid: {fault}")


_FAULTS: dict[type[jwt.PyJWTError], str] = {
    jwt.ExpiredSignatureError: "it has expired",
    jwt.ImmatureSignatureError: "it is not valid yet",
    jwt.InvalidAudienceError: "it is for another audience",
    jwt.InvalidIssuerError: "it is from another issuer",
    jwt.InvalidSignatureError: "its signature is wrong",
    jwt.InvalidAlgorithmError: "it is not signed with its key's algorithm",
}


def _fault(error: jwt.PyJWTError) -> str:
    if isinstance(error, jwt.MissingRequiredClaimError):
        return f"it has no claim {error.claim!r}"
    return next(
        (fault for kind, fault in _FAULTS.items() if isinstance(error, kind)),
        "it is not a JSON Web Token",
    )

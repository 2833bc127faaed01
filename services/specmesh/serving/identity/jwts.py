"""JSON Web Tokens (RFC 7519) of one issuer, checked with the keys of a JWKS file."""

from __future__ import annotations

import json
from pathlib import Path

import jwt

from specmesh.serving.errors import Unauthenticated
from specmesh.serving.identity.watched import UnusableFile, Watched

ALGORITHMS = frozenset(
    {
        *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
        *("ES256", "ES384", "ES512", "EdDSA"),
    }
)
"""Asymmetric ones alone: who can check a token must not be able to make one."""
LEEWAY_SECONDS = 30
"""How far the issuer's clock and ours may be apart."""

MAX_SUBJECT_CHARS = 512
"""OpenID Connect allows 255: it names who calls wherever identities are counted or logged."""

Keys = dict[str, jwt.PyJWK]
"""By key id; that of a key without one is empty."""


class JsonWebTokens:
    """Tokens for ``audience`` that ``issuer`` has signed with a key of the file ``jwks``."""

    def __init__(self, jwks: Path, issuer: str, audience: str) -> None:
        self._keys = Watched([jwks], lambda: _read(jwks))
        self._issuer = issuer
        self._audience = audience

    def load(self) -> None:
        """Read the file. Raises ``UnusableFile``."""
        self._keys.current()

    def identify(self, token: str) -> str:
        """The identity of a token: its issuer and subject. Raises ``Unauthenticated``."""
        try:
            key = self._key(token)
            claims = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                issuer=self._issuer,
                audience=self._audience,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError as error:
            raise unauthenticated(_fault(error)) from None
        if len(claims["sub"]) > MAX_SUBJECT_CHARS:
            raise unauthenticated(f"its subject has more than {MAX_SUBJECT_CHARS} characters")
        return f"jwt:{claims['iss']}|{claims['sub']}"

    def _key(self, token: str) -> jwt.PyJWK:
        keys = self._keys.current()
        key_id = jwt.get_unverified_header(token).get("kid")
        if key_id is None and len(keys) == 1:
            return next(iter(keys.values()))
        if key_id not in keys:
            raise unauthenticated("it is signed with a key that is not known here")
        return keys[key_id]


def unauthenticated(fault: str) -> Unauthenticated:
    """The error for a token with a fault."""
    return Unauthenticated("UNAUTHENTICATED", f"the bearer token is not valid: {fault}")


_FAULTS: dict[type[jwt.PyJWTError], str] = {
    jwt.ExpiredSignatureError: "it has expired",
    jwt.ImmatureSignatureError: "it is not valid yet",
    jwt.InvalidAudienceError: "it is for another audience",
    jwt.InvalidIssuerError: "it is of another issuer",
    jwt.InvalidSignatureError: "its signature is wrong",
    jwt.InvalidAlgorithmError: "it is not signed by its key's algorithm",
}


def _fault(error: jwt.PyJWTError) -> str:
    if isinstance(error, jwt.MissingRequiredClaimError):
        return f"it has no claim {error.claim!r}"
    return next(
        (fault for kind, fault in _FAULTS.items() if isinstance(error, kind)),
        "it is no JSON Web Token",
    )


def _read(path: Path) -> Keys:
    try:
        published = jwt.PyJWKSet.from_dict(json.loads(path.read_text()))
    except (ValueError, AttributeError, jwt.PyJWTError) as error:
        raise UnusableFile(f"{path} is no JSON Web Key Set: {error}") from None
    # Others are for encryption: whoever holds one of those need not be the issuer.
    keys = [key for key in published if key.public_key_use in {None, "sig"}]
    for key in keys:
        if key.algorithm_name not in ALGORITHMS:
            raise UnusableFile(f"{path}: {key.algorithm_name} is not an asymmetric algorithm")
    named = {key.key_id or "": key for key in keys}
    if len(named) < len(keys):
        raise UnusableFile(f"{path}: two keys have the same kid, or none")
    return named

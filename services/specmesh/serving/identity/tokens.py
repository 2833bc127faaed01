"""Static bearer tokens: an operator's file lists the names and hashes of the valid ones."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from specmesh.serving.identity.roles import Proven
from specmesh.serving.identity.watched import UnusableFile, Watched


class NamedToken(BaseModel):
    """A token by its SHA-256, so that a reader of the file can't use it. One name may have several
    tokens, so that a new one can be handed out before the old one is removed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, max_length=256)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    role: Literal["client", "gateway"] = "client"
    """A gateway may name the caller on whose behalf it calls."""

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if "|" in name:
            raise ValueError("a name has no |, which separates a gateway from its caller")
        return name


_FILE = TypeAdapter(list[NamedToken])


class StaticTokens:
    """The tokens in a JSON file: ``[{"name": "alice", "sha256": "9f86..."}]``."""

    def __init__(self, path: Path) -> None:
        self._tokens = Watched([path], lambda: _read(path))

    def load(self) -> None:
        """Read the file. Raises ``UnusableFile``."""
        self._tokens.current()

    def identify(self, token: str) -> Proven | None:
        """Return the identity and role of a token; None if it is not in the file."""
        digest = hashlib.sha256(token.encode()).hexdigest()
        found = None
        # Compare with all tokens, so that the time taken reveals nothing about a match.
        for known in self._tokens.current():
            if hmac.compare_digest(known.sha256, digest):
                found = Proven(f"token:{known.name}", known.role)
        return found


def _read(path: Path) -> Sequence[NamedToken]:
    try:
        tokens = _FILE.validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UnusableFile(f"{path}: {' '.join(filter(None, (where, first['msg'])))}") from None
    known: dict[str, NamedToken] = {}
    for token in tokens:
        if (other := known.setdefault(token.sha256, token)) != token:
            raise UnusableFile(f"{path}: {other.name} and {token.name} have the same sha256")
    return tokens

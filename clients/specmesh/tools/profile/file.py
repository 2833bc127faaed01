"""The file that a profile is written to: JSON, described in docs/profile.md."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from pydantic import TypeAdapter, ValidationError

from specmesh.decoding.errors import InvalidField
from specmesh.tools.profile.costs import MeshCosts, ProfiledAcceptance
from specmesh.tools.profile.law import Sample

VERSION: Final = 4


@dataclass(frozen=True, slots=True)
class ProfiledModel:
    """A model that was measured."""

    name: str
    digest: str
    dtype: str
    backend: str
    heads_depth: int
    threads: int
    """Of a forward, as its process says; 0 if it doesn't."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How good a law is: relative errors on settings that it was not fitted to."""

    median: float
    p90: float
    num_settings: int
    num_held_out: int


@dataclass(frozen=True, slots=True)
class Profile:
    """A mesh as it was measured. Mappings are by role: target, drafter, heads."""

    made: str
    """When, in UTC."""
    machine: Mapping[str, str]
    """Of whoever measured; replicas may be elsewhere."""
    seed: int
    seconds: float
    """That measuring took."""
    models: Mapping[str, ProfiledModel]
    costs: MeshCosts
    accuracy: Mapping[str, Accuracy]
    acceptance: Sequence[ProfiledAcceptance]
    samples: Mapping[str, Sequence[Sample]]
    """What the laws were fitted to."""
    complete: bool = True
    """Whether measuring came to its end, instead of being stopped."""

    def to_json(self) -> str:
        """The profile as text, for a file."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The profile that ``to_json`` wrote. Raises ``InvalidField`` for any other text."""
        try:
            read: Any = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise InvalidField("file", f"is not JSON: {error}") from None
        if not isinstance(read, dict):
            raise InvalidField("file", "must be a JSON object")
        version = read.pop("version", None)
        if version != VERSION:
            raise InvalidField("version", f"{version!r} is not known, only {VERSION}")
        try:
            return TypeAdapter(cls).validate_python(read)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"])) or "file"
            raise InvalidField(field, first["msg"]) from None

"""The JSON file of a profile, described in docs/profile.md."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

import typer
from pydantic import TypeAdapter, ValidationError

from specmesh.decoding.errors import InvalidField
from specmesh.tools.profile.checks import (
    check_acceptance,
    check_costs,
    check_known,
    check_numbers,
)
from specmesh.tools.profile.law import Sample
from specmesh.tools.profile.rounds import ProfiledAcceptance, ProfiledCosts

VERSION: Final = 5
MOST_ERROR: Final = 0.2
"""Median error above which a law misses by much; the aim is half of it (docs/profile.md)."""


@dataclass(frozen=True, slots=True)
class ProfiledModel:
    """A model that was measured."""

    name: str
    digest: str
    dtype: str
    backend: str
    heads_depth: int
    threads: int
    """Number of threads of a forward, as its process reports; 0 if it doesn't."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The accuracy of a law: relative errors on settings that it was not fitted to; None if there
    were too few to hold any out."""

    median: float | None
    p90: float | None
    num_settings: int
    num_held_out: int


@dataclass(frozen=True, slots=True)
class Profile:
    """The measurements of a mesh. Mappings are by role: target, drafter, heads."""

    made: str
    """Time of the measurement, in UTC."""
    machine: Mapping[str, str]
    """The machine that ran the measurement; replicas may be elsewhere."""
    seed: int
    seconds: float
    """Duration of the measurement."""
    models: Mapping[str, ProfiledModel]
    costs: ProfiledCosts
    accuracy: Mapping[str, Accuracy]
    acceptance: Sequence[ProfiledAcceptance]
    samples: Mapping[str, Sequence[Sample]]
    """The samples that the laws were fitted to."""
    complete: bool = True
    """True if measuring completed instead of being stopped."""

    @property
    def heads_depth(self) -> int:
        """Return the maximum number of levels that the target's heads draft; 0 without heads."""
        return max(each.heads_depth for each in self.models.values())

    @property
    def inaccurate(self) -> Mapping[str, float]:
        """Return the median errors, by role, of the laws that miss by much."""
        errors = {role: each.median for role, each in self.accuracy.items()}
        return {role: error for role, error in errors.items() if error and error > MOST_ERROR}

    def to_json(self) -> str:
        """Return the profile as text, for a file."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the profile that ``to_json`` wrote. Raises ``InvalidField`` for any other text."""
        try:
            read: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidField("file", f"is not JSON: {error}") from None
        if not isinstance(read, dict):
            raise InvalidField("file", "must be a JSON object")
        version = read.pop("version", None)
        if version != VERSION:
            raise InvalidField("version", f"{version!r} is not known, only {VERSION}")
        try:
            profile = TypeAdapter(cls).validate_python(read)
        except ValidationError as error:
            raise _wrong(error) from None
        if "target" not in profile.models:
            raise InvalidField("models.target", "is missing")
        check_known(read, asdict(profile))
        check_numbers(asdict(profile))
        check_costs(profile.costs)
        check_acceptance(profile.acceptance, profile.costs)
        return profile


def _wrong(error: ValidationError) -> InvalidField:
    """Return the first fault that pydantic or a dataclass has found."""
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"]))
    own = first.get("ctx", {}).get("error")
    if isinstance(own, InvalidField):
        return InvalidField(f"{field}.{own.field}", own.reason)
    return InvalidField(field or "file", first["msg"])


def read_profile(path: Path, hint: str) -> Profile:
    """Return the profile in a file. Raises BadParameter, which names the file and ``hint``, the
    parameter that it was given by."""
    try:
        return Profile.from_json(path.read_text(encoding="utf-8"))
    except (InvalidField, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path}: {error}", param_hint=hint) from error

"""Settings of processes whose forward passes several processing units can share."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from specmesh.inference.models.units.members.specs import parse_units


class UnitsSettings(BaseSettings):
    """A mixin for the roles that can use several processing units."""

    help_panel: ClassVar[str] = "Several processing units"

    model_config = SettingsConfigDict(frozen=True)

    units: str = Field(
        "",
        validate_default=True,
        description="processing units that share each forward pass, separated by commas: cpu:CORE, "
        "cpu:FIRST-LAST (a thread for each core) or cuda:NUMBER; the first also does all undivided "
        "work; replaces --threads",
    )

    @field_validator("units")
    @classmethod
    def _check_units(cls, text: str, info: ValidationInfo) -> str:
        if text:
            parse_units(text)
        elif info.data.get("backend") == "units":
            raise ValueError("must name processing units, such as cpu:0,cpu:1")
        return text

    @model_validator(mode="after")
    def _check_threads(self) -> Self:
        if self.units and "threads" in self.model_fields_set:
            raise ValueError("--threads cannot be set with --units: a unit has a thread per core")
        return self

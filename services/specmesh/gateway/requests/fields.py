"""Types of fields, and their strict validation.

Validation stops at the first error, so that a request with a million wrong values costs neither
time nor memory: lists stop at the first wrong item (``fail_fast``), objects at the first unknown
name, and each has a size limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    model_validator,
)
from pydantic_core import PydanticCustomError

Uint32 = Annotated[int, Field(ge=0, lt=2**32)]
Float32 = Annotated[float, Field(ge=-3.4e38, le=3.4e38, allow_inf_nan=False)]

MAX_TOP_LOGPROBS = 20
MAX_PAIRS = 16
"""OpenAI's own limit for ``metadata``."""


def _check_pairs(value: object) -> object:
    # pydantic checks the max_length of a dict only after it has validated every value.
    if isinstance(value, dict) and len(value) > MAX_PAIRS:
        raise PydanticCustomError(
            "too_long", f"must hold at most {MAX_PAIRS} pairs, not {len(value)}"
        )
    return value


Pairs = BeforeValidator(_check_pairs)
"""Limits the size of a dictionary to ``MAX_PAIRS``."""


def one_or(kinds: str) -> Discriminator:
    """Return what tells a text from a list of ``kinds``, by the tags ``<one>`` and ``<many>``."""

    def tag(value: object) -> str | None:
        if isinstance(value, list):
            return "<many>"
        return "<one>" if isinstance(value, str) else None

    return told_apart(tag, f"a string or a list of {kinds}")


def told_apart(tag: Callable[[Any], str | None], kinds: str) -> Discriminator:
    """Return what tells the types of a union apart by ``tag``, which is None for a value that is of
    none of these ``kinds``."""
    message = f"Input should be {kinds}"
    return Discriminator(tag, custom_error_type="union", custom_error_message=message)


class Fields(BaseModel):
    """A model that refuses unknown fields and values of another type."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _keep_one_unknown(cls, value: Any) -> Any:
        """Drop all unknown names but the first, which suffices to refuse the object."""
        if not isinstance(value, dict) or len(value) <= len(cls.model_fields):
            return value
        names = {field.alias or name for name, field in cls.model_fields.items()}
        known = {name: value[name] for name in names if name in value}
        unknown = next(name for name in value if name not in names)
        return {**known, unknown: value[unknown]}

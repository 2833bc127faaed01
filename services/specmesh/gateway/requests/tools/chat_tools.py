"""The tools of a chat."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    model_validator,
)
from pydantic_core import PydanticCustomError

from specmesh.gateway.requests.fields import Fields

MAX_TOOLS = 128
"""The orchestrator's own limit, which is OpenAI's."""
MAX_SCHEMA_VALUES = 4096
"""Bounds the writing; the orchestrator has the limit for all tools."""


def _check_size(schema: object) -> object:
    """Refuse a schema of more values than anybody needs."""
    left = [schema]
    num_values = 0
    while left and num_values <= MAX_SCHEMA_VALUES:
        value = left.pop()
        num_values += 1
        if isinstance(value, dict | list):
            left += value.values() if isinstance(value, dict) else value
    if left:
        raise PydanticCustomError("too_long", f"has more than {MAX_SCHEMA_VALUES} values")
    return schema


class OfferedFunction(Fields):
    """A function that the model may call; ``parameters`` is a JSON schema."""

    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    parameters: Annotated[dict[str, Any], BeforeValidator(_check_size)] | None = None
    strict: bool | None = None
    """True if the arguments must follow the schema also where no call is forced."""


class Tool(Fields):
    """A tool that the model may call."""

    type: Literal["function"]
    function: OfferedFunction
    _written: str = PrivateAttr("")

    @model_validator(mode="wrap")
    @classmethod
    def _keep(cls, value: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        tool = validate(value)
        function = {**value["function"]}
        if not tool.function.strict:
            function.pop("strict", None)
        tool._written = json.dumps({**value, "function": function}, ensure_ascii=False)
        return tool

    @property
    def written(self) -> str:
        """The tool as JSON for the mesh, with its keys in the order in which they were given;
        ``strict`` only if it means something."""
        return self._written

"""The messages of a chat."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    Tag,
    ValidationInfo,
)
from pydantic_core import PydanticCustomError

from specmesh.client import ToolCall
from specmesh.gateway.requests.fields import Fields, one_or

MAX_PARTS = 1024
MAX_CALLS = 128
"""Most calls in a message, as many as there may be tools."""
MAX_NAME_CHARS = 64
"""OpenAI's own limit for the name of a participant in a chat."""


class TextPart(Fields):
    """A part of a message's content."""

    type: Literal["text"]
    text: str


def _text_only(value: object) -> object:
    """Refuse a part of another type before any of its fields is found unknown."""
    given = value.get("type") if isinstance(value, dict) else None
    if isinstance(given, str) and given != "text":
        raise PydanticCustomError(
            "part",
            "content parts of type {given} are not supported: the model reads text only",
            {"given": repr(given)},
        )
    return value


def without_nothing(value: object) -> object:
    """Drop fields that are null or an empty list, of which responses sent back have many."""
    if not isinstance(value, dict):
        return value
    return {name: each for name, each in value.items() if each is not None and each != []}


class CalledFunction(Fields):
    """The function of a call, with its arguments as JSON."""

    name: str
    arguments: str


class MadeCall(Fields):
    """A call of a tool in an assistant's message."""

    id: str
    type: Literal["function"] = "function"
    function: Annotated[CalledFunction, BeforeValidator(without_nothing)]
    index: int | None = None
    """Ignored, but accepted since the pieces of a stream have it."""

    @property
    def spoken(self) -> ToolCall:
        """The call as the SDK has it."""
        return ToolCall(self.id, self.function.name, self.function.arguments)


def _only_of(role: str) -> AfterValidator:
    """Refuse a field in messages of another role."""

    def check(value: Any, info: ValidationInfo) -> Any:
        if value and info.data.get("role", role) != role:
            raise PydanticCustomError("other_role", f"only messages of role {role!r} have it")
        return value

    return AfterValidator(check)


def _content(value: Any, info: ValidationInfo) -> Any:
    """Refuse a message that neither says anything nor calls a tool."""
    if value is None and not info.data.get("tool_calls"):
        raise PydanticCustomError("missing", "is missing")
    return "" if value is None else value


def _call_id(value: Any, info: ValidationInfo) -> Any:
    """Refuse a result that belongs to no call."""
    if not value and info.data.get("role") == "tool":
        raise PydanticCustomError("missing", "is missing")
    return value


class Message(Fields):
    """A message of a chat. An assistant's may have no content if it calls tools."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    tool_calls: Annotated[
        Annotated[
            list[Annotated[MadeCall, BeforeValidator(without_nothing)]],
            Field(max_length=MAX_CALLS, fail_fast=True),
        ]
        | None,
        _only_of("assistant"),
    ] = None
    content: Annotated[
        Annotated[str, Tag("<one>")]
        | Annotated[
            list[Annotated[TextPart, BeforeValidator(_text_only)]],
            Field(max_length=MAX_PARTS, fail_fast=True),
            Tag("<many>"),
        ],
        one_or("parts"),
        BeforeValidator(_content),
    ] = Field(default=None, validate_default=True)
    name: Annotated[str, Field(max_length=MAX_NAME_CHARS)] = ""
    tool_call_id: Annotated[str, BeforeValidator(_call_id), _only_of("tool")] = Field(
        default="", validate_default=True
    )
    reasoning_content: Annotated[str, _only_of("assistant")] = ""

    @property
    def spoken(self) -> dict[str, Any]:
        """The message for the chat template, which knows ``developer`` as ``system``."""
        parts = self.content
        text = parts if isinstance(parts, str) else "".join(part.text for part in parts)
        return {
            "role": "system" if self.role == "developer" else self.role,
            "content": text,
            "name": self.name,
            "tool_calls": [each.spoken for each in self.tool_calls or ()],
            "tool_call_id": self.tool_call_id,
            "reasoning_content": self.reasoning_content,
        }

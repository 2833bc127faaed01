"""The input of POST /v1/responses: a text, or the messages of a conversation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from specmesh.gateway.requests.chats import MAX_MESSAGES
from specmesh.gateway.requests.fields import Fields
from specmesh.gateway.requests.messages import MAX_PARTS, without_nothing


def _only(*types: str) -> BeforeValidator:
    """Drop the empty fields of an object, and refuse one of a type that is not among ``types``
    before any of its fields is found unknown. Without a type it is of the first."""

    def checked(value: object) -> object:
        given = without_nothing(value)
        if isinstance(given, dict) and given.get("type", types[0]) not in types:
            listed = " and ".join(map(repr, types))
            raise PydanticCustomError(
                "type", "only type {types} is supported here", {"types": listed}
            )
        return given

    return BeforeValidator(checked)


class InputText(Fields):
    """A text in a message: the user's, or one of an earlier response."""

    type: Literal["input_text", "output_text"]
    text: str
    logprobs: list[Any] | None = None
    """Ignored: what an earlier response told of its text."""


class InputMessage(Fields):
    """A message of the input."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[
        Annotated[str, Tag("<one>")]
        | Annotated[
            list[Annotated[InputText, _only("input_text", "output_text")]],
            Field(max_length=MAX_PARTS, fail_fast=True),
            Tag("<many>"),
        ],
        Discriminator(lambda value: "<many>" if isinstance(value, list) else "<one>"),
    ]
    # Ignored: what an earlier response told of its message.
    id: str | None = None
    status: str | None = None
    phase: str | None = None

    @property
    def as_chat(self) -> dict[str, str]:
        """The message of a chat that says the same."""
        parts = self.content
        text = parts if isinstance(parts, str) else "".join(part.text for part in parts)
        return {"role": self.role, "content": text}


Input = Annotated[
    Annotated[str, Tag("<text>")]
    | Annotated[
        list[Annotated[InputMessage, _only("message")]],
        Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True),
        Tag("<messages>"),
    ],
    Discriminator(lambda value: "<messages>" if isinstance(value, list) else "<text>"),
]


def messages_of(given: str | list[InputMessage]) -> list[dict[str, str]]:
    """Return the messages of a chat that are the input."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return [message.as_chat for message in given]

"""The body of POST /v1/responses.

It is read as the chat that would be answered alike: what both calls have is checked by
``ChatRequest``, under the same names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from specmesh.gateway.errors import ApiError
from specmesh.gateway.requests.chats import ChatRequest
from specmesh.gateway.requests.fields import MAX_TOP_LOGPROBS, Fields, Uint32
from specmesh.gateway.requests.grammars import GUIDED, FlatSchemaFormat, PlainFormat, TextFormat
from specmesh.gateway.requests.input_items import ConversationInput, Input, only
from specmesh.gateway.requests.parameters.responses import RESPONSES
from specmesh.gateway.requests.parameters.tables import CHAT, taken
from specmesh.gateway.requests.reading import HINTS, read_request
from specmesh.gateway.requests.tools.chat_tools import MAX_TOOLS
from specmesh.gateway.requests.tools.response_tools import AnyFlatChoice, FlatTool

NAMES = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "logprobs": "include",
    "response_format": "text.format",
    "tools[].function": "tools[]",
}
"""Names of chats' parameters, and those that mean the same here."""
LOGPROBS = "message.output_text.logprobs"

_HINTS = {**HINTS, **NAMES, "previous_response_id": "input", "conversation": "input"}


class TextOptions(Fields):
    """The options of a response's text."""

    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None


class ResponseFields(Fields):
    """The fields that chats don't have, or have in another form."""

    input: Input
    instructions: str | None = None
    max_output_tokens: Uint32 | None = None
    include: list[
        # Beside log-probabilities, what tools of OpenAI's would tell: there is none of it.
        Literal[
            "message.output_text.logprobs",
            "reasoning.encrypted_content",
            "code_interpreter_call.outputs",
            "computer_call_output.output.image_url",
            "file_search_call.results",
            "message.input_image.image_url",
            "web_search_call.action.sources",
        ]
    ] = Field(default_factory=list, max_length=16, fail_fast=True)
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    text: TextOptions | None = None
    tools: list[Annotated[FlatTool, only("function")]] = Field(
        default_factory=list, max_length=MAX_TOOLS, fail_fast=True
    )
    tool_choice: AnyFlatChoice = "auto"

    @model_validator(mode="after")
    def _check_logprobs(self) -> Self:
        if self.top_logprobs and LOGPROBS not in self.include:
            raise ApiError.invalid(
                "top_logprobs", f"'top_logprobs' has no meaning unless 'include' has {LOGPROBS!r}"
            )
        return self

    @property
    def conversation(self) -> ConversationInput:
        """The messages of the chat that asks for the same."""
        return ConversationInput(self.instructions, self.input)

    @property
    def as_chat(self) -> dict[str, object]:
        """The fields of the chat that asks for the same, but for its messages."""
        return {
            "max_completion_tokens": self.max_output_tokens,
            "logprobs": LOGPROBS in self.include,
            "top_logprobs": self.top_logprobs,
            "tools": [each.as_chat for each in self.tools],
            "tool_choice": self.chat_choice,
            **self._structured,
        }

    @property
    def chat_choice(self) -> object:
        """The choice of tools as a chat has it."""
        choice = self.tool_choice
        return choice if isinstance(choice, str) else choice.as_chat

    @property
    def told_choice(self) -> object:
        """The choice of tools, as it was asked for."""
        choice = self.tool_choice
        return choice if isinstance(choice, str) else choice.model_dump()

    @property
    def text_format(self) -> dict[str, object]:
        """The format of the text, as it was asked for."""
        match None if self.text is None else self.text.format:
            case FlatSchemaFormat() as given:
                told = given.model_dump(exclude={"schema_"}, exclude_none=True)
                return {**told, "schema": json.loads(given.schema_)}
            case PlainFormat(type=kind):
                return {"type": kind}
        return {"type": "text"}

    @property
    def _structured(self) -> dict[str, object]:
        match None if self.text is None else self.text.format:
            case FlatSchemaFormat(schema_=schema):
                return {"structured_outputs": {"json": schema}}
            case PlainFormat(type="json_object"):
                return {"structured_outputs": {"json_object": True}}
        return {}


@dataclass(frozen=True, slots=True)
class ResponsesRequest:
    """The body of POST /v1/responses: its own fields, the chat that asks for the same, and the
    names here of what its messages say."""

    own: ResponseFields
    chat: ChatRequest
    places: Mapping[str, str]

    @property
    def names(self) -> dict[str, str]:
        """The names that this call has for what errors of the mesh tell of."""
        names = self.chat.names
        if "structured_outputs" in self.own.as_chat:  # made of text.format
            names.pop("response_format", None)
        return {**NAMES, **self.places, **names, "max_tokens": NAMES["max_tokens"]}


def responses_request(given: Mapping[str, object]) -> ResponsesRequest:
    """Validate the body ``given``. Raises ``ApiError``."""
    kept = taken(given, RESPONSES, _HINTS)
    own_names = ResponseFields.model_fields.keys()
    own = read_request(
        ResponseFields, {name: kept[name] for name in kept if name in own_names}, RESPONSES
    )
    shared = {name: kept[name] for name in kept if name not in own_names}
    for name in ("response_format", "structured_outputs", *GUIDED):
        if name in shared and "structured_outputs" in own.as_chat:
            raise ApiError.invalid(name, f"{name!r} and 'text.format' exclude each other")
    said = own.conversation
    given = {**shared, **own.as_chat, "messages": said.messages}
    chat = read_request(ChatRequest, given, CHAT, names=said.names)
    return ResponsesRequest(own, chat, said.names)

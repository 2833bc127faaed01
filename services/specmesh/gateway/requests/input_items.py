"""The input of POST /v1/responses: a text, or what was said in a conversation, item by item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from specmesh.gateway.requests.chats import MAX_MESSAGES
from specmesh.gateway.requests.fields import Fields, one_or
from specmesh.gateway.requests.messages import MAX_CALLS, MAX_PARTS, without_nothing


def only(*types: str) -> BeforeValidator:
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


Content = Annotated[
    Annotated[str, Tag("<one>")]
    | Annotated[
        list[Annotated[InputText, only("input_text", "output_text")]],
        Field(max_length=MAX_PARTS, fail_fast=True),
        Tag("<many>"),
    ],
    one_or("parts"),
]


def text_of(content: str | list[InputText]) -> str:
    """Return the text of a content."""
    return content if isinstance(content, str) else "".join(part.text for part in content)


class InputMessage(Fields):
    """A message of the input."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: Content
    # Ignored: what an earlier response told of its message.
    id: str | None = None
    status: str | None = None
    phase: str | None = None


class InputCall(Fields):
    """A call of a tool in an earlier response."""

    type: Literal["function_call"]
    call_id: Annotated[str, Field(min_length=1)]
    name: Annotated[str, Field(min_length=1)]
    arguments: str
    # Ignored: what an earlier response told of its call.
    id: str | None = None
    status: str | None = None

    @property
    def as_chat(self) -> dict[str, Any]:
        """The call in a chat's message that is the same."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.call_id, "type": "function", "function": function}


class InputOutput(Fields):
    """The result of a tool call."""

    type: Literal["function_call_output"]
    call_id: Annotated[str, Field(min_length=1)]
    output: Content
    id: str | None = None
    status: str | None = None


class ReasoningText(Fields):
    """A text in the reasoning of an earlier response."""

    type: Literal["reasoning_text"]
    text: str


class InputReasoning(Fields):
    """The reasoning of an earlier response."""

    type: Literal["reasoning"]
    content: Annotated[list[ReasoningText], Field(max_length=MAX_PARTS, fail_fast=True)] = Field(
        default_factory=list
    )
    # Ignored: there are no summaries here, and nothing is encrypted.
    summary: list[Any] | None = None
    encrypted_content: str | None = None
    id: str | None = None
    status: str | None = None


Item = InputMessage | InputCall | InputOutput | InputReasoning
TYPES = ("message", "function_call", "function_call_output", "reasoning")


def _type(value: object) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    return f"<{kind}>" if kind in TYPES else "<message>"


AnyItem = Annotated[
    Annotated[InputMessage, Tag("<message>")]
    | Annotated[InputCall, Tag("<function_call>")]
    | Annotated[InputOutput, Tag("<function_call_output>")]
    | Annotated[InputReasoning, Tag("<reasoning>")],
    Discriminator(_type),
    only(*TYPES),
]
Input = Annotated[
    Annotated[str, Tag("<one>")]
    | Annotated[
        list[AnyItem],
        Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True),
        Tag("<many>"),
    ],
    one_or("items"),
]


_SILENT = {"role": "assistant", "content": ""}


class ConversationInput:
    """The messages of a chat that are the ``instructions`` and the input, a text or ``items``.
    Reasoning, text and calls that follow each other are one message of the model."""

    def __init__(self, instructions: str | None, items: str | list[Item]) -> None:
        self.messages: list[dict[str, Any]] = []
        self.names = {"messages": "input"}
        """The names in the request of what a message says, by the names in the chat."""
        if instructions is not None:
            self._say("system", instructions, "instructions")
        if isinstance(items, str):
            self._say("user", items, "input")
        else:
            for number, item in enumerate(items):
                self._add(item, f"input[{number}]")

    def _say(self, role: str, text: str, field: str) -> None:
        self._begin({"role": role, "content": text}, field, content=field)

    def _add(self, item: Item, field: str) -> None:
        """Add the ``item`` of this name."""
        match item:
            case InputReasoning(content=parts):
                if thought := "".join(each.text for each in parts):
                    message = {**_SILENT, "reasoning_content": thought}
                    self._begin(message, field, reasoning_content=f"{field}.content")
            case InputCall():
                self._call(item, field)
            case InputOutput(call_id=call_id, output=content):
                said = {"content": text_of(content), "tool_call_id": call_id}
                names = {"content": f"{field}.output", "tool_call_id": f"{field}.call_id"}
                self._begin({"role": "tool", **said}, field, **names)
            case InputMessage(role=role, content=content):
                is_thought = role == "assistant" and _is_thought(self.messages)
                before = self.messages.pop() if is_thought else {}
                self._begin({**before, "role": role, "content": text_of(content)}, field)

    def _begin(self, message: dict[str, Any], field: str, **names: str) -> None:
        """Add a message that is ``field`` of the request, but for what has other ``names``."""
        place = f"messages[{len(self.messages)}]"
        self.messages.append(message)
        self.names[place] = field
        self.names |= {f"{place}.{name}": ours for name, ours in names.items()}

    def _call(self, item: InputCall, field: str) -> None:
        """Add a call to the last message, or to a new one if that is not the model's or full."""
        last = self.messages[-1] if self.messages else {"role": ""}
        if last["role"] != "assistant" or len(last.get("tool_calls", ())) == MAX_CALLS:
            self._begin({**_SILENT}, field)
        calls = self.messages[-1].setdefault("tool_calls", [])
        place = f"messages[{len(self.messages) - 1}].tool_calls[{len(calls)}]"
        self.names |= {place: field, f"{place}.function": field}
        calls.append(item.as_chat)


def _is_thought(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the last message is reasoning and nothing else so far."""
    return bool(messages) and messages[-1].keys() == {*_SILENT, "reasoning_content"}

"""Conversion of a request's chat to its template's variables, and of the result to a prompt."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from typing import Any

from google.protobuf import struct_pb2

from specmesh.decoding.errors import InvalidField
from specmesh.orchestrator.admission.request_limits import (
    MAX_ARGUMENT_BYTES,
    MAX_ARGUMENT_DEPTH,
    MAX_MESSAGES,
)
from specmesh.orchestrator.chats.tools import check_tools, chosen_tools, read_calls, read_tools
from specmesh.serving.errors import InvalidArgument
from specmesh.v1 import chat_pb2

OURS = frozenset({"messages", "add_generation_prompt", "continue_final_message"})
"""Variables that have fields of their own in a chat."""
OPTIONAL = ("tools", "documents")
"""Variables that templates expect to be None if they are not given."""
MARK = "\u2063END_OF_THE_LAST_MESSAGE"
"""Marks the end of the last message, where the prompt has to end."""
END = f"{MARK} "
"""The mark with a space, which shows whether the template strips messages."""
EXACT = 2**53
"""Whole numbers below this are passed as integers, since JSON does not tell 1 from 1.0."""


def check_size(chat: chat_pb2.Chat, max_bytes: int) -> None:
    """Raise ``InvalidField`` for a chat without messages or one that is too large; ``max_bytes``
    limits the total size of its messages in UTF-8."""
    if not chat.messages:
        raise InvalidField("chat.messages", "must have at least one entry")
    if len(chat.messages) > MAX_MESSAGES:
        raise InvalidField("chat.messages", f"has more than {MAX_MESSAGES} entries")
    num_bytes = sum(message.ByteSize() for message in chat.messages)
    if num_bytes > max_bytes:
        raise InvalidField(
            "chat.messages", f"{num_bytes} bytes exceed the {max_bytes} that a prompt may have"
        )
    num_bytes = chat.template_arguments.ByteSize()
    if num_bytes > MAX_ARGUMENT_BYTES:
        raise InvalidField(
            "chat.template_arguments", f"{num_bytes} bytes exceed the limit of {MAX_ARGUMENT_BYTES}"
        )
    check_tools(chat)


def said_in(chat: chat_pb2.Chat, special_tokens: Set[str] = frozenset()) -> dict[str, Any]:
    """Return the template's variables that hold what the caller says, as plain JSON: template
    arguments, tools and messages; the choice of tools is checked too. ``special_tokens`` are the
    names of variables that the caller must not set. Raises ``InvalidField``."""
    if chat.continue_final_message and chat.add_generation_prompt:
        raise InvalidField(
            "chat.continue_final_message", "must not be combined with add_generation_prompt"
        )
    for n, message in enumerate(chat.messages):
        if not message.role:
            raise InvalidField(f"chat.messages[{n}].role", "must not be empty")
    messages = [_message(f"chat.messages[{n}]", each) for n, each in enumerate(chat.messages)]
    said = {**_arguments(chat.template_arguments, OURS | special_tokens), "messages": messages}
    if tools := read_tools(chat):
        if "tools" in said:
            raise InvalidField(
                "chat.template_arguments.tools", "must not be combined with chat.tools"
            )
        said["tools"] = tools
    if chat.HasField("tool_choice"):
        chosen_tools(chat)
    return said


def variables(
    chat: chat_pb2.Chat, said: Mapping[str, Any], special_tokens: Mapping[str, str]
) -> dict[str, Any]:
    """Return all of the template's variables, with those that are ``said_in`` the chat."""
    messages = list(said["messages"])
    if chat.continue_final_message:
        messages[-1] = {**messages[-1], "content": messages[-1]["content"] + END}
    asked = chat.HasField("add_generation_prompt")
    return {
        **dict.fromkeys(OPTIONAL),
        **special_tokens,
        **said,
        "messages": messages,
        "add_generation_prompt": (
            chat.add_generation_prompt if asked else not chat.continue_final_message
        ),
    }


def ending_in_message(text: str, message: str) -> str:
    """Return ``text`` up to the end of its last ``message``, which is marked.

    Raises ``InvalidArgument`` with reason CHAT_REFUSED if ``text`` does not contain the message
    unchanged.
    """
    before, found, after = text.rpartition(MARK)
    if not found or message.strip() not in before:
        raise InvalidArgument(
            "CHAT_REFUSED",
            "the model's chat template changes or omits the last message, so that it can't be "
            "continued",
        )
    prompt = before if after.startswith(END.removeprefix(MARK)) else before.rstrip()
    return prompt.replace(END, "").replace(MARK, "")  # in case the template repeats the message


def _message(field: str, message: chat_pb2.ChatMessage) -> dict[str, Any]:
    optional = {
        # Templates check whether these are there, not whether they are empty.
        "name": message.name,
        "reasoning_content": message.reasoning_content,
        "thinking": message.reasoning_content,  # as transformers calls it, too
        "tool_calls": read_calls(field, message),
        "tool_call_id": message.tool_call_id,
    }
    given = {name: value for name, value in optional.items() if value}
    return {"role": message.role, "content": message.content, **given}


def _arguments(message: struct_pb2.Struct, taken: frozenset[str]) -> dict[str, Any]:
    field = "chat.template_arguments"
    for name in sorted(message.fields):
        if name in taken:
            raise InvalidField(f"{field}.{name}", "must not be set by the caller")
    return {name: _plain(f"{field}.{name}", value) for name, value in message.fields.items()}


def _plain(field: str, value: struct_pb2.Value, depth: int = 0) -> Any:
    if depth > MAX_ARGUMENT_DEPTH:
        raise InvalidField(field, f"is nested more than {MAX_ARGUMENT_DEPTH} levels deep")
    match value.WhichOneof("kind"):
        case "null_value":
            return None
        case "bool_value":
            return value.bool_value
        case "string_value":
            return value.string_value
        case "number_value":
            number = value.number_value
            if not math.isfinite(number):
                raise InvalidField(field, "must be finite")
            return int(number) if number.is_integer() and abs(number) < EXACT else number
        case "list_value":
            items = value.list_value.values
            return [_plain(f"{field}[{n}]", item, depth + 1) for n, item in enumerate(items)]
        case "struct_value":
            fields = value.struct_value.fields
            return {
                name: _plain(f"{field}.{name}", item, depth + 1) for name, item in fields.items()
            }
        case _:
            raise InvalidField(field, "must be set")

"""From a request's chat to what its template is given, and from what that says to the prompt."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from google.protobuf import struct_pb2

from specmesh.decoding.errors import InvalidField
from specmesh.orchestrator.admission.request_limits import (
    MAX_ARGUMENT_BYTES,
    MAX_ARGUMENT_DEPTH,
    MAX_MESSAGES,
)
from specmesh.serving.errors import InvalidArgument
from specmesh.v1 import chat_pb2

OURS = frozenset({"messages", "add_generation_prompt", "continue_final_message"})
"""Variables that a chat has fields of their own for."""
OPTIONAL = ("tools", "documents")
"""Variables that templates expect to be None where nobody gives them."""
MARK = "\u2063END_OF_THE_LAST_MESSAGE"
"""Shows where the last message ends, for the prompt to end there."""
END = f"{MARK} "
"""The space tells whether the template strips messages."""
EXACT = 2**53
"""Below it a number with no fraction is meant as a whole one: JSON knows no other."""


def check_size(chat: chat_pb2.Chat, max_bytes: int) -> None:
    """Raise ``InvalidField`` for a chat without messages or that is too large; ``max_bytes`` limits
    its messages together, in UTF-8."""
    if not 1 <= len(chat.messages) <= MAX_MESSAGES:
        raise InvalidField(
            "chat.messages", f"must hold 1 to {MAX_MESSAGES} messages, not {len(chat.messages)}"
        )
    num_bytes = sum(message.ByteSize() for message in chat.messages)
    if num_bytes > max_bytes:
        raise InvalidField(
            "chat.messages", f"{num_bytes} bytes are more than the context holds, {max_bytes}"
        )
    num_bytes = chat.template_arguments.ByteSize()
    if num_bytes > MAX_ARGUMENT_BYTES:
        raise InvalidField(
            "chat.template_arguments", f"{num_bytes} bytes are more than {MAX_ARGUMENT_BYTES}"
        )


def variables(chat: chat_pb2.Chat, special_tokens: Mapping[str, str]) -> dict[str, Any]:
    """What the template is given, as plain JSON; raises ``InvalidField``."""
    if chat.continue_final_message and chat.add_generation_prompt:
        raise InvalidField("chat.continue_final_message", "excludes add_generation_prompt")
    for n, message in enumerate(chat.messages):
        if not message.role:
            raise InvalidField(f"chat.messages[{n}].role", "must not be empty")
    messages = [
        # Templates ask whether there is a name, not whether it is empty.
        {"role": each.role, "content": each.content, **({"name": each.name} if each.name else {})}
        for each in chat.messages
    ]
    if chat.continue_final_message:
        messages[-1]["content"] += END
    asked = chat.HasField("add_generation_prompt")
    return {
        **dict.fromkeys(OPTIONAL),
        **special_tokens,
        **_arguments(chat.template_arguments, OURS | special_tokens.keys()),
        "messages": messages,
        "add_generation_prompt": (
            chat.add_generation_prompt if asked else not chat.continue_final_message
        ),
    }


def ending_in_message(text: str, message: str) -> str:
    """``text`` up to the end of its last ``message``, which is marked.

    Raises ``InvalidArgument`` with reason CHAT_REFUSED where it isn't there as it was given.
    """
    before, found, after = text.rpartition(MARK)
    if not found or message.strip() not in before:
        raise InvalidArgument(
            "CHAT_REFUSED",
            "the model's chat template changes the last message or leaves it out, so that it can't "
            "be continued",
        )
    prompt = before if after.startswith(END.removeprefix(MARK)) else before.rstrip()
    return prompt.replace(END, "").replace(MARK, "")  # where it is shown before as well


def _arguments(message: struct_pb2.Struct, taken: frozenset[str]) -> dict[str, Any]:
    field = "chat.template_arguments"
    for name in sorted(message.fields):
        if name in taken:
            raise InvalidField(f"{field}.{name}", "is not the caller's to give")
    return {name: _plain(f"{field}.{name}", value) for name, value in message.fields.items()}


def _plain(field: str, value: struct_pb2.Value, depth: int = 0) -> Any:
    if depth > MAX_ARGUMENT_DEPTH:
        raise InvalidField(field, f"is nested more than {MAX_ARGUMENT_DEPTH} deep")
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

"""Messages of a chat, as callers write them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specmesh.v1 import chat_pb2


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a chat. ``role`` is usually "system", "user" or "assistant"; ``name``
    distinguishes speakers of one role, if the model's template uses it."""

    role: str
    content: str
    name: str = ""


def chat_turn(place: str, message: ChatMessage | Mapping[str, Any]) -> chat_pb2.ChatMessage:
    """Build the message. Raises TypeError, naming ``place``, if ``message`` is not one."""
    if isinstance(message, ChatMessage):
        role, content, name = message.role, message.content, message.name
    elif isinstance(message, Mapping):
        if set(message) - {"name"} != {"role", "content"}:
            keys = ", ".join(map(repr, sorted(message))) or "nothing"
            raise TypeError(
                f"{place}: a message has 'role', 'content' and optionally 'name', not {keys}"
            )
        role, content, name = message["role"], message["content"], message.get("name", "")
    else:
        raise TypeError(f"{place}: expected a ChatMessage or a mapping, got {message!r}")
    if not isinstance(role, str):
        raise TypeError(f"{place}.role: expected a string, got {role!r}")
    if not isinstance(name, str):
        raise TypeError(f"{place}.name: expected a string, got {name!r}")
    return chat_pb2.ChatMessage(role=role, content=_text(f"{place}.content", content), name=name)


def _text(place: str, content: object) -> str:
    """Return the text of ``content``, a string or a list of text parts as in OpenAI's API."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise TypeError(f"{place}: expected a string or text parts, got {content!r}")
    return "".join(_text_of_part(f"{place}[{at}]", part) for at, part in enumerate(content))


def _text_of_part(place: str, part: object) -> str:
    if not isinstance(part, Mapping) or part.get("type") != "text":
        kind = part.get("type") if isinstance(part, Mapping) else part
        raise TypeError(f"{place}: expected a part of type 'text', got {kind!r}")
    if set(part) != {"type", "text"} or not isinstance(part["text"], str):
        raise TypeError(f"{place}: a text part has only 'type' and 'text', which is a string")
    return str(part["text"])

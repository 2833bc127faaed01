"""Messages and tools of a chat, as callers write them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specmesh.client.requests.filled import filled, naming
from specmesh.v1 import chat_pb2

_OPTIONAL = ("name", "tool_calls", "tool_call_id", "reasoning_content")
_TEXTS = ("role", "name", "tool_call_id", "reasoning_content")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model's call of the tool ``name``. ``arguments`` are the text of a JSON object as the
    model wrote it, so that they may be invalid; the message with the result repeats the ``id``."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a chat. ``role`` is usually "system", "user", "assistant" or "tool"; ``name``
    distinguishes speakers of one role, if the model's template uses it. An assistant's message may
    have ``tool_calls``, with or without content, and ``reasoning_content``, which precedes it; a
    tool's message has the result of the call ``tool_call_id``."""

    role: str
    content: str
    name: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    reasoning_content: str = ""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Makes the model call tools: only those of ``names`` if there are any, and one call alone if
    it is a ``single_call``. Arguments are then valid under the parameters of their tool."""

    names: Sequence[str] = ()
    single_call: bool = False


def chat_turn(place: str, message: ChatMessage | Mapping[str, Any]) -> chat_pb2.ChatMessage:
    """Build the message; a mapping has OpenAI's shape. Raises TypeError, naming ``place``, if
    ``message`` is not one, and ValueError for a text that no message can hold."""
    if isinstance(message, ChatMessage):
        given: Mapping[str, Any] = {name: getattr(message, name) for name in _FIELDS}
    elif isinstance(message, Mapping):
        _check_keys(place, message)
        given = {name: value for name, value in message.items() if value is not None}
    else:
        raise TypeError(f"{place}: expected a ChatMessage or a mapping, got {message!r}")
    for name in _TEXTS:
        if not isinstance(given.get(name, ""), str):
            raise TypeError(f"{place}.{name}: expected a string, got {given[name]!r}")
    calls = given.get("tool_calls", ())
    if not isinstance(calls, list | tuple):
        raise TypeError(f"{place}.tool_calls: expected a sequence of calls, got {calls!r}")
    content = _text(f"{place}.content", given.get("content", ""))
    written = [_call(f"{place}.tool_calls[{at}]", each) for at, each in enumerate(calls)]
    texts = {name: given.get(name, "") for name in _TEXTS}
    with naming(f"{place}."):
        return filled(chat_pb2.ChatMessage, **texts, content=content, tool_calls=written)


_FIELDS = ("role", "content", *_OPTIONAL)


def _check_keys(place: str, message: Mapping[str, Any]) -> None:
    needed = {"role"} if message.get("tool_calls") else {"role", "content"}
    if set(message) - {"content", *_OPTIONAL} != {"role"} or not set(message) >= needed:
        keys = ", ".join(map(repr, sorted(message))) or "nothing"
        optional = ", ".join(map(repr, _OPTIONAL))
        raise TypeError(
            f"{place}: a message has 'role', 'content' and optionally {optional}, not {keys}"
        )
    if message.get("content") is None and "content" in needed:
        raise TypeError(f"{place}.content: expected a string or text parts, got None")


def _call(place: str, call: object) -> chat_pb2.ToolCall:
    if isinstance(call, ToolCall):
        with naming(f"{place}."):
            return filled(chat_pb2.ToolCall, **asdict(call))
    if not isinstance(call, Mapping) or not isinstance(call.get("function"), Mapping):
        raise TypeError(f"{place}: expected a ToolCall or a mapping with a 'function'")
    function = call["function"]
    arguments = function.get("arguments", "{}")
    if isinstance(arguments, Mapping):
        arguments = _json(f"{place}.function.arguments", arguments)
    texts = {"id": call.get("id", ""), "name": function.get("name"), "arguments": arguments}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise TypeError(f"{place}: {name!r} must be a string, not {text!r}")
    with naming(f"{place}."):
        return filled(chat_pb2.ToolCall, **texts)


def written_tools(tools: object) -> list[str]:
    """Return each tool as JSON; a string is taken for JSON, and None for no tools. Raises
    TypeError, naming the place, for one that is no mapping or that JSON can't represent, and
    ValueError for one that no message can hold."""
    if tools is None:
        return []
    if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
        raise TypeError(f"tools: expected a sequence of tools, got {type(tools).__name__}")
    return [_written_tool(f"tools[{at}]", each) for at, each in enumerate(tools)]


def _written_tool(place: str, tool: object) -> str:
    if not isinstance(tool, str | Mapping):
        raise TypeError(f"{place}: expected a mapping or JSON, got {tool!r}")
    written = tool if isinstance(tool, str) else _json(place, tool)
    with naming(f"{place}: "):
        written.encode()
    return written


def chosen(choice: object) -> chat_pb2.ToolChoice:
    """Build the message. Raises TypeError for anything that is no choice of tools."""
    if not isinstance(choice, ToolChoice):
        raise TypeError(f"tool_choice: expected a ToolChoice, got {choice!r}")
    if isinstance(choice.names, str):  # would be read as a sequence of characters
        raise TypeError("tool_choice.names: expected a sequence of strings, got one string")
    with naming("tool_choice."):
        return filled(chat_pb2.ToolChoice, names=choice.names, single_call=choice.single_call)


def _json(place: str, value: Mapping[str, Any]) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{place}: {error}") from None


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

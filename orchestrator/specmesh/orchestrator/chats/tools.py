"""The tools of a chat, and the calls in its messages, as templates read them."""

from __future__ import annotations

from typing import Any

from specmesh.decoding.errors import InvalidField
from specmesh.orchestrator.admission.request_limits import MAX_TOOL_BYTES, MAX_TOOLS
from specmesh.orchestrator.chats.json_text import read_object
from specmesh.v1 import chat_pb2

TOOL_CHOICE = "chat.tool_choice"


def check_tools(chat: chat_pb2.Chat) -> None:
    """Raise ``InvalidField`` for more tools than are allowed, or larger ones."""
    if len(chat.tools) > MAX_TOOLS:
        raise InvalidField("chat.tools", f"has more than {MAX_TOOLS} entries")
    num_bytes = sum(len(each.encode()) for each in chat.tools)
    if num_bytes > MAX_TOOL_BYTES:
        raise InvalidField("chat.tools", f"{num_bytes} bytes exceed the limit of {MAX_TOOL_BYTES}")


def read_tools(chat: chat_pb2.Chat) -> list[dict[str, Any]] | None:
    """Return the tools; None if there are none, as templates expect. Raises ``InvalidField``."""
    tools = [read_object(f"chat.tools[{n}]", text) for n, text in enumerate(chat.tools)]
    for n, tool in enumerate(tools):
        field = f"chat.tools[{n}]"
        if tool.get("type") != "function" or not isinstance(tool.get("function"), dict):
            raise InvalidField(field, 'must have the "type" "function" and an object "function"')
        name = tool["function"].get("name")
        if not isinstance(name, str) or not name:
            raise InvalidField(field, "must have a function with a name")
        tool["function"].pop("strict", None)  # is not for the model
    return tools or None


def strict_tools(chat: chat_pb2.Chat) -> frozenset[int]:
    """Return the numbers of the tools that are called with valid arguments alone. Raises
    ``InvalidField``."""
    written = {n: text for n, text in enumerate(chat.tools) if '"strict"' in text}
    strict = {
        n: read_object(f"chat.tools[{n}]", text)["function"].get("strict")
        for n, text in written.items()
    }
    for n, value in strict.items():
        if not isinstance(value, bool | None):
            raise InvalidField(f"chat.tools[{n}].function.strict", "must be true or false")
    return frozenset(n for n, value in strict.items() if value)


def tool_names(chat: chat_pb2.Chat) -> tuple[str, ...]:
    """Return the names of the tools. Raises ``InvalidField``."""
    return tuple(tool["function"]["name"] for tool in read_tools(chat) or ())


def functions(chat: chat_pb2.Chat) -> dict[int, dict[str, Any]]:
    """Return the functions of the tools by their numbers. Raises ``InvalidField``."""
    return {n: tool["function"] for n, tool in enumerate(read_tools(chat) or ())}


def chosen_tools(chat: chat_pb2.Chat) -> dict[int, dict[str, Any]]:
    """Return the functions of which the model must call some, by the numbers of the tools. Raises
    ``InvalidField``."""
    known, names = functions(chat), chat.tool_choice.names
    if not known:
        raise InvalidField(TOOL_CHOICE, "needs chat.tools")
    if len(names) > MAX_TOOLS:
        raise InvalidField(f"{TOOL_CHOICE}.names", f"has more than {MAX_TOOLS} entries")
    known_names = {function["name"] for function in known.values()}
    for at, name in enumerate(names):
        if name not in known_names:
            raise InvalidField(f"{TOOL_CHOICE}.names[{at}]", f"no tool is named {name!r}")
    return {n: each for n, each in known.items() if not names or each["name"] in names}


def read_calls(field: str, message: chat_pb2.ChatMessage) -> list[dict[str, Any]]:
    """Return the calls in ``message`` in OpenAI's shape, but with objects as arguments, which is
    how transformers hands them to templates; arguments that are none stay the text that they are.
    Raises ``InvalidField``."""
    calls = []
    for n, call in enumerate(message.tool_calls):
        if not call.name:
            raise InvalidField(f"{field}.tool_calls[{n}].name", "must not be empty")
        function = {"name": call.name, "arguments": _arguments(call.arguments or "{}")}
        # Templates check whether there is an id, not whether it is empty.
        named = {"id": call.id} if call.id else {}
        calls.append({**named, "type": "function", "function": function})
    return calls


def _arguments(text: str) -> dict[str, Any] | str:
    """Return the object in ``text``, or else ``text``: the model wrote it, and where it has made a
    mistake its message must be able to go back to it all the same."""
    try:
        return read_object("arguments", text)
    except InvalidField:
        return text

"""The shape in which a template reads the calls of tools in messages.

Most templates read arguments as an object, as transformers hands them over; some join them as text.
Arguments that are no object, because the model has made a mistake, are text wherever the template
writes it, and elsewhere the one member of an object. Some templates recognize a message with calls
by its content, which must then be null. Like the shape of contents, this is found by trying, with
marks in place of names and arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from itertools import count, product
from typing import Any

from specmesh.orchestrator.chats.shapes import Message, Render, WordsLost

_NAME, _ARGUMENT = "6182953047{:06d}", "2947105836{:06d}"
"""Digits, as the marks of contents are. The last ones are the call's number."""
_FOUND_NAME = re.compile(_NAME.format(0)[:-6] + "([0-9]{6})")
_FOUND_ARGUMENT = re.compile("(.?)" + _ARGUMENT.format(0)[:-6] + "([0-9]{6})", re.DOTALL)
"""A mark with the character before it: an apostrophe where a template that expects text has written
an object in the syntax of Python."""

_MISTAKE = "arguments"
"""The name of arguments that are no object where a template writes arguments one by one."""

Function = dict[str, Any]
Shape = Callable[[Message], Message]


def with_calls_readable(messages: Sequence[Message], render: Render) -> Sequence[Message]:
    """Return ``messages``, whose calls have objects as arguments, or text that is none, with all
    calls in the shape that the template reads.

    Raises ``WordsLost`` if it omits calls in every shape. If it refuses all of them, it will refuse
    the messages too, so they are returned unchanged.
    """
    if not any("tool_calls" in message for message in messages):
        return messages
    best: set[int] | None = None
    ways = (False, True) if _has_mistakes(messages) else (False,)
    for in_object, as_text, is_null, in_parts in product(ways, *[(False, True)] * 3):
        shape = _shape(in_object=in_object, as_text=as_text, is_null=is_null)
        seen = _seen([*map(shape, messages)], render, in_parts=in_parts)
        lost = None if seen is None else _callers(messages) - seen
        if lost == set():
            return [*map(shape, messages)]
        if lost is not None and best is None:
            best = lost
    if best:
        raise WordsLost(f"it omits the calls of tools in chat.messages[{min(best)}]")
    return messages


def _callers(messages: Sequence[Message]) -> set[int]:
    return {n for n, message in enumerate(messages) if "tool_calls" in message}


def _has_mistakes(messages: Sequence[Message]) -> bool:
    """Return whether some call has arguments that are no object."""
    calls = (call for message in messages for call in message.get("tool_calls", ()))
    return any(isinstance(call["function"]["arguments"], str) for call in calls)


def _shape(*, in_object: bool, as_text: bool, is_null: bool) -> Shape:
    def written(function: Function) -> Function:
        arguments = function["arguments"]
        if in_object and isinstance(arguments, str):
            arguments = {_MISTAKE: arguments}
        if as_text and not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        return {**function, "arguments": arguments}

    def shaped(message: Message) -> Message:
        if "tool_calls" not in message:
            return message
        content = None if is_null and not message["content"] else message["content"]
        return {**_with_functions(message, written), "content": content}

    return shaped


def _seen(messages: Sequence[Message], render: Render, *, in_parts: bool) -> set[int] | None:
    """Return the messages all of whose calls the template writes; None if it refuses the calls."""
    numbers = count()

    def marked(function: Function) -> Function:
        number = next(numbers)
        arguments: Any = {"a": _ARGUMENT.format(number)}
        if isinstance(function["arguments"], str):
            arguments = json.dumps(arguments)
        return {**function, "name": _NAME.format(number), "arguments": arguments}

    tried, callers = [], []
    for n, message in enumerate(messages):
        each = message
        if "tool_calls" in message:
            each = _with_functions(message, marked)
            callers += [n] * len(message["tool_calls"])
        parts = [{"type": "text", "text": each["content"]}]
        tried.append({**each, "content": parts} if in_parts and each["content"] else each)
    try:
        text = render(tried)
    except MemoryError:
        raise
    except Exception:  # a template can raise any exception
        return None
    names = {int(mark[1]) for mark in _FOUND_NAME.finditer(text)}
    written = {int(mark[2]) for mark in _FOUND_ARGUMENT.finditer(text) if mark[1] != "'"}
    lost = {n for number, n in enumerate(callers) if number not in names & written}
    return set(callers) - lost


def _with_functions(message: Message, change: Callable[[Function], Function]) -> Message:
    calls = [{**call, "function": change(call["function"])} for call in message["tool_calls"]]
    return {**message, "tool_calls": calls}

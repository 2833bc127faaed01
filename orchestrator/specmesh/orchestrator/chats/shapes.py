"""The shape in which a template reads the content of messages: a text, or a list of text parts.

Templates of models that also see pictures loop over parts; if given a text, they silently omit it.
The shape that a template reads is found by trying: each message contains a mark of its own, which
must appear in the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

Message = dict[str, Any]
Render = Callable[[Sequence[Message]], str]
"""Renders messages with the template; raises whatever the template raises."""

_MARK = "7305918264{:06d}"
"""Digits, because they are unaffected by changes of case and by trimming. The last ones are the
message's number."""
_FOUND = re.compile(_MARK.format(0)[:-6] + "([0-9]{6})(['\"]})?")
"""A mark, with what follows it if a template that expects text has written out parts in the syntax
of Python or JSON."""


class WordsLost(Exception):
    """The template omits what the caller says in any shape."""


def readable(messages: Sequence[Message], render: Render) -> Sequence[Message]:
    """Return ``messages``, whose contents are texts, with each content as text if the template
    reads it in that form, otherwise in parts.

    Where tools were called, templates may omit what is said beside a call, as that of Llama 3 does,
    and the system's message, as Mistral's do after a result. Raises ``WordsLost`` if anything else
    is omitted. If the template refuses the marks in both shapes, it will refuse the messages too,
    so they are returned unchanged.
    """
    every = range(len(messages))
    seen = read_as_text = _seen(messages, (), render)
    in_parts: Collection[int] = ()
    if read_as_text is None or len(read_as_text) < len(messages):
        seen = read_as_parts = _seen(messages, every, render)
        if read_as_text is None and read_as_parts is None:
            return messages
        in_parts = (read_as_parts or set()) - (read_as_text or set())
        if len(in_parts) < len(messages):  # some are read as text, others in parts
            seen = _seen(messages, in_parts, render)
    for n in every:
        if n not in (seen or ()) and _must_be_read(messages[n], messages):
            role = messages[n]["role"]
            raise WordsLost(f"it omits the content of chat.messages[{n}], whose role is {role!r}")
    return _shaped(messages, in_parts)


def _shaped(messages: Sequence[Message], in_parts: Collection[int]) -> list[Message]:
    return [
        {**message, "content": [{"type": "text", "text": message["content"]}]}
        if n in in_parts and _speaks(message)
        else message
        for n, message in enumerate(messages)
    ]


def _seen(
    messages: Sequence[Message], in_parts: Collection[int], render: Render
) -> set[int] | None:
    """Return the messages whose marks the template writes, given the contents of those ``in_parts``
    in parts; None if it refuses them."""
    marked = [
        {**each, "content": _MARK.format(n)} if _speaks(each) else each
        for n, each in enumerate(messages)
    ]
    try:
        text = render(_shaped(marked, in_parts))
    except MemoryError:
        raise
    except Exception:  # a template can raise any exception
        return None
    found = ((int(mark[1]), bool(mark[2])) for mark in _FOUND.finditer(text))
    return {n for n, is_written_out in found if n not in in_parts or not is_written_out}


def _calls_tools(message: Message) -> bool:
    return "tool_calls" in message


def _must_be_read(message: Message, messages: Sequence[Message]) -> bool:
    """Return whether the template must not omit the content of ``message``, one of ``messages``."""
    if _calls_tools(message) or not message["content"].strip():
        return False
    return message["role"] != "system" or not any(map(_calls_tools, messages))


def _speaks(message: Message) -> bool:
    """Return whether the message has a content; one that only calls tools must not get any."""
    return bool(message["content"]) or not _calls_tools(message)


def heeds(name: str, text: str, render: Callable[..., str]) -> bool:
    """Return whether the template renders another text than ``text`` without the variable."""
    try:
        without = render(**{name: None})
    except MemoryError:
        raise
    except Exception:  # a template can raise any exception, which shows that it reads the variable
        return True
    return without != text

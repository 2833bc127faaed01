"""The shape in which a template reads what messages say: a text, or a list of parts that hold it.

Templates of models that also see pictures loop over parts; given a text, they leave it out without
a word. What a template reads is found by trying: each message says a mark of its own, which must be
in the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

Message = dict[str, Any]
Render = Callable[[Sequence[Message]], str]
"""What the template makes of messages; raises whatever the template raises."""

_MARK = "7305918264{:06d}"
"""Digits are the same in any case, and nobody trims them. The last are the message's number."""
_FOUND = re.compile(_MARK.format(0)[:-6] + "([0-9]{6})(['\"]})?")
"""A mark, and what follows it where parts were written out as Python or JSON have them, by a
template that wants text."""


class WordsLost(Exception):
    """The template leaves out what a message says, in either shape."""


def readable(messages: Sequence[Message], render: Render) -> Sequence[Message]:
    """``messages``, whose contents are texts, each as text if the template reads it so, or else in
    parts.

    Raises ``WordsLost``. Where the template refuses the marks in both shapes, it will refuse the
    messages as well, and these are returned as they are.
    """
    every = range(len(messages))
    seen = read_as_text = _seen(messages, (), render)
    in_parts: Collection[int] = ()
    if read_as_text is None or len(read_as_text) < len(messages):
        seen = read_as_parts = _seen(messages, every, render)
        if read_as_text is None and read_as_parts is None:
            return messages
        in_parts = (read_as_parts or set()) - (read_as_text or set())
        if len(in_parts) < len(messages):  # some read as text, others in parts
            seen = _seen(messages, in_parts, render)
    for n in every:
        if n not in (seen or ()) and messages[n]["content"].strip():
            role = messages[n]["role"]
            raise WordsLost(f"it leaves out what messages[{n}] says, whose role is {role!r}")
    return _shaped(messages, in_parts)


def _shaped(messages: Sequence[Message], in_parts: Collection[int]) -> list[Message]:
    return [
        {**message, "content": [{"type": "text", "text": message["content"]}]}
        if n in in_parts
        else message
        for n, message in enumerate(messages)
    ]


def _seen(
    messages: Sequence[Message], in_parts: Collection[int], render: Render
) -> set[int] | None:
    """The messages whose marks the template writes, of which those ``in_parts`` come in parts; None
    if it refuses them."""
    marked = [{**each, "content": _MARK.format(n)} for n, each in enumerate(messages)]
    try:
        text = render(_shaped(marked, in_parts))
    except MemoryError:
        raise
    except Exception:  # a template can raise whatever Python can
        return None
    found = ((int(mark[1]), bool(mark[2])) for mark in _FOUND.finditer(text))
    return {n for n, is_written_out in found if n not in in_parts or not is_written_out}

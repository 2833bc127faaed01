"""Prompts from a file: JSON lines, a JSON list such as ShareGPT's, or plain text, one a line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from specmesh.load.workload.conversations import Conversation, Turn

_ASKING = {"human", "user"}


def read_prompts(file: Path) -> tuple[Conversation, ...]:
    """The conversations in ``file``, in order.

    Named ``.jsonl`` it has a JSON object a line, named ``.json`` a list of them; any other has a
    prompt on each line that is not empty. An object has ``prompt`` (or ``text``); or ``messages``
    as a chat has them, with ``role`` and ``content``; or ShareGPT's ``conversations``, with
    ``from`` and ``value``. Of the latter two the user's are asked, in turn: the server's answers
    take the place of those recorded. ``max_tokens`` limits the answers.

    Raises ValueError, which says where, and OSError.
    """
    text = file.read_text(encoding="utf-8")
    match file.suffix:
        case ".jsonl":
            found = list(_json_lines(text))
        case ".json":
            found = list(_json_list(text))
        case _:
            found = [Conversation((Turn(line),)) for line in text.splitlines() if line.strip()]
    if not found:
        raise ValueError(f"{file} has no prompts")
    return tuple(found)


def _json_lines(text: str) -> Iterator[Conversation]:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                yield from _conversation(json.loads(line))
            except (TypeError, ValueError) as error:
                raise ValueError(f"line {number}: {error}") from None


def _json_list(text: str) -> Iterator[Conversation]:
    listed = json.loads(text)
    if not isinstance(listed, list):
        raise TypeError("is no list")
    for number, each in enumerate(listed):
        try:
            yield from _conversation(each)
        except (TypeError, ValueError) as error:
            raise ValueError(f"object {number}: {error}") from None


def _conversation(found: Mapping[str, Any]) -> Iterator[Conversation]:
    """The one in an object, or none, if nobody asks anything in it."""
    if not isinstance(found, dict):
        raise TypeError("is no object")
    asked = _asked(found)
    if asked:
        limit = found.get("max_tokens")
        yield Conversation(tuple(Turn(text, limit) for text in asked))


def _asked(found: Mapping[str, Any]) -> list[str]:
    for listed, who, what in (("messages", "role", "content"), ("conversations", "from", "value")):
        if listed in found:
            try:
                return [each[what] for each in found[listed] if each[who] in _ASKING]
            except KeyError as error:
                raise ValueError(f"one of {listed} has no {error}") from None
    prompt = found.get("prompt", found.get("text"))
    if not isinstance(prompt, str):
        raise TypeError("has no prompt, text, messages or conversations")
    return [prompt]

"""Prompts from a file: JSON lines, ShareGPT's JSON, or plain text with a prompt a line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from specmesh.load.conversations import Conversation, Turn

_ASKING = {"human", "user"}


def read_prompts(file: Path) -> tuple[Conversation, ...]:
    """The conversations in ``file``, in order.

    Named ``.jsonl`` it has an object a line, with ``prompt`` (or ``text``), or with ``messages``
    as a chat has them; ``max_tokens`` limits the answer. Named ``.json`` it is ShareGPT's: a list
    of objects whose ``conversations`` have ``from`` and ``value``; the prompts are those of
    ``human``, in turn, and our server's answers take the place of those recorded. Any other has a
    prompt on each line that is not empty.

    Raises ValueError, which says where, and OSError.
    """
    text = file.read_text(encoding="utf-8")
    match file.suffix:
        case ".jsonl":
            found = list(_json_lines(text))
        case ".json":
            found = list(_sharegpt(text))
        case _:
            found = [_of(line) for line in text.splitlines() if line.strip()]
    if not found:
        raise ValueError(f"{file} has no prompts")
    return tuple(found)


def _of(text: str, num_output_tokens: int | None = None) -> Conversation:
    return Conversation((Turn(text, num_output_tokens),))


def _json_lines(text: str) -> Iterator[Conversation]:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                yield _from_object(json.loads(line))
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"line {number}: {error}") from None


def _from_object(found: Mapping[str, Any]) -> Conversation:
    limit = found.get("max_tokens")
    if "messages" in found:
        said = [each["content"] for each in found["messages"] if each["role"] in _ASKING]
        if not said:
            raise ValueError("messages: none is the user's")
        return Conversation(tuple(Turn(each, limit) for each in said))
    prompt = found.get("prompt", found.get("text"))
    if not isinstance(prompt, str):
        raise TypeError("neither prompt nor text nor messages")
    return _of(prompt, limit)


def _sharegpt(text: str) -> Iterator[Conversation]:
    listed = json.loads(text)
    if not isinstance(listed, list):
        raise TypeError("is no list of conversations, as ShareGPT's is")
    for number, each in enumerate(listed):
        try:
            turns = [
                Turn(said["value"]) for said in each["conversations"] if said["from"] in _ASKING
            ]
        except (KeyError, TypeError) as error:
            raise ValueError(f"conversation {number}: {error}") from None
        if turns:
            yield Conversation(tuple(turns))

"""Prompts from a file: JSON lines, a JSON list such as ShareGPT's, or text with one per line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from specmesh.load.workload.conversations import Conversation, Turn
from specmesh.load.workload.lengths import LONGEST

_ASKING = {"human", "user"}
_SYSTEM = {"developer", "system"}


def read_prompts(file: Path) -> tuple[Conversation, ...]:
    """Return the conversations in ``file``, in order.

    A ``.jsonl`` file has one JSON object per line, a ``.json`` file a list of objects; any other
    file has a prompt on each non-empty line. An object has ``prompt`` (or ``text``), or
    ``messages`` as in a chat, with ``role`` and ``content``, or ShareGPT's ``conversations``, with
    ``from`` and ``value``. Of the latter two, the system's messages at the beginning are kept, and
    the user's, one per turn; the server's answers replace the recorded ones. ``max_tokens`` limits
    the answers.

    Raises OSError, and ValueError with the place of the error.
    """
    # Some editors begin a file with a byte order mark. A line ends where a file's lines do: texts,
    # also in JSON, may have other characters that Python's splitlines takes for an end.
    with file.open(encoding="utf-8-sig") as opened:
        match file.suffix:
            case ".jsonl":
                found = list(_json_lines(opened))
            case ".json":
                found = list(_json_list(opened.read()))
            case _:
                lines = (line.rstrip("\n") for line in opened if line.strip())
                found = [Conversation((Turn(line),)) for line in lines]
    if not found:
        raise ValueError(f"{file} has no prompts")
    return tuple(found)


def _json_lines(lines: Iterable[str]) -> Iterator[Conversation]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield from _conversation(_parsed(line))
            except (TypeError, ValueError) as error:
                raise ValueError(f"line {number}: {error}") from None


def _json_list(text: str) -> Iterator[Conversation]:
    listed = _parsed(text)
    if not isinstance(listed, list):
        raise TypeError("is not a list")
    for number, each in enumerate(listed):
        try:
            yield from _conversation(each)
        except (TypeError, ValueError) as error:
            raise ValueError(f"object {number}: {error}") from None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _conversation(found: Mapping[str, Any]) -> Iterator[Conversation]:
    """Yield the conversation in an object, or nothing if it has no user message."""
    if not isinstance(found, dict):
        raise TypeError("is not an object")
    limit = _limit(found.get("max_tokens"))
    made = _said(found)
    if made.turns:
        yield replace(made, turns=tuple(Turn(each.text, limit) for each in made.turns))


def _said(found: Mapping[str, Any]) -> Conversation:
    """Return the conversation in an object, without the limit of its answers."""
    for listed, who, what in (("messages", "role", "content"), ("conversations", "from", "value")):
        if listed in found:
            try:
                return _by_role(found[listed], who, what)
            except KeyError as error:
                raise ValueError(f"one of {listed} has no {error}") from None
    prompt = found.get("prompt", found.get("text"))
    if not isinstance(prompt, str):
        raise TypeError("has no prompt, text, messages or conversations")
    return Conversation((Turn(prompt),))


def _by_role(messages: Sequence[Mapping[str, Any]], who: str, what: str) -> Conversation:
    leading = list(takewhile(lambda each: each[who] in _SYSTEM, messages))
    others = messages[len(leading) :]
    return Conversation(
        turns=tuple(Turn(_text(each[what])) for each in others if each[who] in _ASKING),
        system=tuple(_text(each[what]) for each in leading),
        num_left_out=sum(each[who] in _SYSTEM for each in others),
    )


def _text(content: object) -> str:
    """Return the text of a message, whose content may be a list of parts."""
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [part.get("text") if isinstance(part, dict) else None for part in parts]
    if not all(isinstance(each, str) for each in texts):
        raise TypeError("the content of a message must be text, or a list of parts with text")
    return "".join(map(str, texts))


def _limit(found: object) -> int | None:
    if found is None:
        return None
    if isinstance(found, int) and not isinstance(found, bool) and 0 < found <= LONGEST:
        return found
    raise ValueError(
        f"max_tokens must be a whole number from 1 to {LONGEST}, not {json.dumps(found)}"
    )

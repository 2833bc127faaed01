"""The forms in which an answer is printed."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import Enum, auto
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from specmesh.cli.answers.waiting import Waiting
from specmesh.client import Chunk, GenerationResult, GenerationStream, TokenKind

STYLES = {
    TokenKind.ACCEPTED: "green",
    TokenKind.RECOVERED: "magenta",  # not red: nothing went wrong
    TokenKind.BONUS: "blue",
    TokenKind.UNCHECKED: "yellow",
    TokenKind.UNSPECIFIED: "",
}
SIGNS = {
    TokenKind.ACCEPTED: "●",
    TokenKind.RECOVERED: "◆",
    TokenKind.BONUS: "○",
    TokenKind.UNCHECKED: "◇",
}
LEGEND = {
    TokenKind.ACCEPTED: "drafted and accepted",
    TokenKind.RECOVERED: "the target's, in place of a draft token",
    TokenKind.BONUS: "the target's own",
    TokenKind.UNCHECKED: "drafted and not checked",
}


class Form(Enum):
    """What ``write`` makes of an answer."""

    TEXT = auto()
    """The text as it comes."""
    SPECULATION = auto()
    """The same, coloured, or marked where there are no colours, by how each token came about."""
    JSON = auto()
    """One object at the end."""
    NDJSON = auto()
    """An object a line: ``{"chunk": ...}`` as they come, then ``{"result": ...}``."""


async def write(stream: GenerationStream, form: Form, waiting: Waiting) -> None:
    """Read ``stream`` to its end and print it on standard output. ``waiting`` is told what comes.

    What was printed of an answer that breaks off ends its line, and the error says so.
    """
    try:
        async with waiting.watching():
            async for chunk in stream:
                _write_chunk(chunk, form, waiting)
    except BaseException as error:
        waiting.end_line()
        if stream.text and form in {Form.TEXT, Form.SPECULATION}:
            error.add_note("the text is incomplete")
        raise
    match form:
        case Form.JSON:
            typer.echo(_dumps(_result(stream.result)))
        case Form.NDJSON:
            typer.echo(_dumps({"result": _result(stream.result)}))
        case Form.TEXT:
            typer.echo()
        case Form.SPECULATION:
            typer.echo()
            _write_legend(stream)


def _write_chunk(chunk: Chunk, form: Form, waiting: Waiting) -> None:
    match form:
        case Form.JSON:
            waiting.came()
        case Form.NDJSON:
            typer.echo(_dumps({"chunk": asdict(chunk)}))
            waiting.came()
        case Form.TEXT:
            typer.echo(chunk.text, nl=False)
            waiting.came(chunk.text)
        case Form.SPECULATION:
            console = Console(highlight=False, soft_wrap=True)
            console.print(_shown(chunk, console), end="")
            waiting.came(chunk.text)


def _write_legend(stream: GenerationStream) -> None:
    counts = stream.result.kinds
    for kind, meaning in LEGEND.items():
        if kind in counts:
            line = Text(f"{counts.count(kind):>6} {_mark(kind) or ' '} {kind}", STYLES[kind])
            Console(stderr=True, highlight=False).print(line.append(f"  {meaning}", "dim"))


def _shown(chunk: Chunk, console: Console) -> Text:
    return coloured(chunk) if console.color_system and not console.no_color else marked(chunk)


def _mark(kind: TokenKind) -> str:
    """The sign before a token where there are no colours: none before what was accepted, so that
    the text stays a text."""
    return "" if kind is TokenKind.ACCEPTED else SIGNS.get(kind, "")


def marked(chunk: Chunk) -> Text:
    """The text of ``chunk`` with a sign before each token that the drafter did not say."""
    if not chunk.token_ids:
        return Text(chunk.text)
    pairs = zip(chunk.texts, chunk.kinds, strict=True)
    return Text("".join(f"{_mark(kind)}{text}" if text else "" for text, kind in pairs))


def coloured(chunk: Chunk) -> Text:
    """The text of ``chunk``, the part of each token in the style of its kind."""
    if not chunk.token_ids:  # what was held back until the end
        return Text(chunk.text)
    return Text.assemble(
        *((text, STYLES[kind]) for text, kind in zip(chunk.texts, chunk.kinds, strict=True))
    )


def in_words(result: GenerationResult, has_drafter: bool | None = None) -> str:
    """One line about what the answer took; ``has_drafter`` tells, if known, whether the mesh has
    one."""
    stats = result.stats
    speed = stats.num_output_tokens / stats.duration_ms * 1000 if stats.duration_ms else 0.0
    words = [
        f"{stats.num_output_tokens} tokens in {stats.duration_ms:.0f} ms ({speed:.1f} tokens/s)",
        f"first after {stats.time_to_first_token_ms:.0f} ms",
        f"{result.strategy}, seed {result.seed}",
        f"{stats.num_verify_calls} verify calls",
    ]
    if stats.acceptance is not None:
        words.append(f"acceptance {stats.acceptance:.0%}")
    if stats.num_unchecked_tokens:
        words.append(f"{stats.num_unchecked_tokens} tokens not checked by the target")
    if not stats.num_drafted_tokens and result.strategy != "autoregressive":
        words.append("no drafter" if has_drafter is False else "nothing drafted")
    if not result.resumable:
        words.append("not stored")
    return "; ".join((*words, f"ended by {result.finish_reason.replace('_', ' ')}"))


def _result(result: GenerationResult) -> dict[str, Any]:
    return {**asdict(result), "acceptance": result.stats.acceptance}


def _dumps(value: Any) -> str:
    return json.dumps(value, default=_bytes)


def _bytes(value: object) -> list[int]:
    """The bytes of a token, which need not be a text."""
    if not isinstance(value, bytes):
        raise TypeError(f"{value!r} can't be written as JSON")
    return list(value)

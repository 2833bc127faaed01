"""The output forms of an answer."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import Enum, auto
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from specmesh.cli.answers.waiting import Waiting
from specmesh.client import (
    Chunk,
    FinishReason,
    GenerationResult,
    GenerationStream,
    ServedModel,
    TokenKind,
)

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
    """The form in which ``write`` prints an answer."""

    TEXT = auto()
    """The text as it arrives."""
    SPECULATION = auto()
    """The same, with each token's origin shown by a colour or, without colours, by a mark."""
    JSON = auto()
    """One object at the end."""
    NDJSON = auto()
    """One object per line: ``{"chunk": ...}`` as they arrive, then ``{"result": ...}``."""


async def write(stream: GenerationStream, form: Form, waiting: Waiting) -> None:
    """Read ``stream`` to its end, print it on standard output, and report progress to ``waiting``.

    If the answer fails, the printed part's line is ended, and a note is added to the error.
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
            typer.echo(_dumps({"chunk": _without(asdict(chunk), "deltas")}))
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
    """Return the mark before a token if there are no colours; accepted tokens have none, so that
    the text stays readable."""
    return "" if kind is TokenKind.ACCEPTED else SIGNS.get(kind, "")


def marked(chunk: Chunk) -> Text:
    """Return the text of ``chunk`` with a mark before each token that is not an accepted draft."""
    if not chunk.token_ids:
        return Text(chunk.text)
    pairs = zip(chunk.texts, chunk.kinds, strict=True)
    return Text("".join(f"{_mark(kind)}{text}" if text else "" for text, kind in pairs))


def coloured(chunk: Chunk) -> Text:
    """Return the text of ``chunk`` with each token's part in the style of its kind."""
    if not chunk.token_ids:  # text that was held back until the end
        return Text(chunk.text)
    return Text.assemble(
        *((text, STYLES[kind]) for text, kind in zip(chunk.texts, chunk.kinds, strict=True))
    )


def in_words(result: GenerationResult, has_drafter: bool | None = None) -> str:
    """Return one line of statistics; ``has_drafter`` tells whether the mesh has a drafter, None if
    that is unknown."""
    stats = result.stats
    speed = stats.num_output_tokens / stats.duration_ms * 1000 if stats.duration_ms else 0.0
    words = [
        f"{stats.num_output_tokens} tokens in {stats.duration_ms:.0f} ms ({speed:.1f} tokens/s)",
        f"first after {stats.time_to_first_token_ms:.0f} ms",
        f"{_strategy(result)}, seed {result.seed}",
        f"{stats.num_verify_calls} verify calls",
    ]
    if stats.acceptance is not None:
        words.append(f"acceptance {stats.acceptance:.0%}")
    if stats.num_unchecked_tokens:
        words.append(f"{stats.num_unchecked_tokens} tokens not checked by the target")
    if _drafted_nothing(result):
        nothing = "no drafter" if has_drafter is False else "nothing drafted"
        reason = _reason(result)
        words.append(f"nothing drafted, because {reason}" if reason else nothing)
    if result.num_resumes:
        words.append(f"resumed {result.num_resumes} time{'s' if result.num_resumes > 1 else ''}")
    if not result.resumable:
        words.append("not stored")
    return "; ".join((*words, f"finish reason {result.finish_reason.replace('_', ' ')}"))


def is_cut_off(result: GenerationResult, max_tokens: int | None) -> bool:
    """Return whether the answer was shorter than ``max_tokens``, or ended at all, only because the
    context or the replicas' KV cache can hold no more."""
    wanted = max_tokens is None or result.stats.num_output_tokens < max_tokens
    return result.finish_reason is FinishReason.LENGTH and wanted


def cut_off(result: GenerationResult, model: ServedModel | None) -> str:
    """Return a note on an answer of ``model``, None if unknown, that was cut off."""
    limit = result.stats.num_prompt_tokens + result.stats.num_output_tokens
    if model is not None and limit == model.target.context_tokens:
        return (
            f"specmesh: the answer was cut off at the model's context of {limit} tokens (prompt "
            "included)"
        )
    return (
        f"specmesh: the answer was cut off: with its prompt it has reached the limit of {limit} "
        "tokens, which is the model's context or the KV cache of a replica"
    )


def _drafted_nothing(result: GenerationResult) -> bool:
    return not result.stats.num_drafted_tokens and result.strategy != "autoregressive"


def _reason(result: GenerationResult) -> str:
    """Return why a strategy that was asked for by name has drafted nothing, if that is known."""
    return "" if result.strategy == "auto" else result.stats.explanation


def _strategy(result: GenerationResult) -> str:
    explanation = result.stats.explanation
    if not explanation or (_drafted_nothing(result) and _reason(result)):
        return result.strategy
    return f"{result.strategy} ({explanation})"


def _result(result: GenerationResult) -> dict[str, Any]:
    return {**_without(asdict(result), "message"), "acceptance": result.stats.acceptance}


def _without(fields: dict[str, Any], name: str) -> dict[str, Any]:
    """Return ``fields`` but for what repeats the text, since no chat is printed so."""
    return {each: value for each, value in fields.items() if each != name}


def _dumps(value: Any) -> str:
    return json.dumps(value, default=_bytes)


def _bytes(value: object) -> list[int]:
    """Encode the bytes of a token, which need not be valid UTF-8."""
    if not isinstance(value, bytes):
        raise TypeError(f"{value!r} can't be written as JSON")
    return list(value)

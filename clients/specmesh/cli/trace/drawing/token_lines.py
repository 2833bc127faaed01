"""The token tree of an answer as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from specmesh.cli.answers.output import SIGNS, STYLES
from specmesh.client import TokenKind
from specmesh.traces.analysis.token_tree import Fate, Token, TracedTokenTree

_LOOKS = {
    Fate.ACCEPTED: (SIGNS[TokenKind.ACCEPTED], STYLES[TokenKind.ACCEPTED]),
    Fate.RECOVERED: (SIGNS[TokenKind.RECOVERED], STYLES[TokenKind.RECOVERED]),
    Fate.BONUS: (SIGNS[TokenKind.BONUS], STYLES[TokenKind.BONUS]),
    Fate.UNCHECKED: (SIGNS[TokenKind.UNCHECKED], STYLES[TokenKind.UNCHECKED]),
    Fate.REJECTED: ("✕", "dim red"),
    Fate.CANCELLED: ("·", "dim"),
    Fate.UNUSED: ("–", "dim"),
}


def token_lines(tree: TracedTokenTree) -> Iterator[Text]:
    """Yield the counts, then the answer from its beginning; each wasted branch follows below the
    position where it leaves the answer."""
    counts = tree.counts()
    yield Text(f"tokens: {counts['committed']} committed, {counts['drafted']} drafted, ").append(
        f"{counts['wasted']} wasted"
    )
    legend = Text("        ")
    for fate, (sign, style) in _LOOKS.items():
        if counts[fate]:
            legend.append(sign, style).append(f" {counts[fate]} {fate.value}  ", "dim")
    yield legend
    row: list[Token] = []
    first, number = 1, 0
    for position, token in enumerate(tree.committed, start=1):
        if branches := tree.branches(number):
            yield from _row(first, row)
            first, row = position, []
            yield from (_branch(chain) for chain in branches)
        row.append(token)
        number = token.number
    yield from _row(first, row)
    yield from (_branch(chain) for chain in tree.branches(number))


def _row(first: int, tokens: Sequence[Token]) -> Iterator[Text]:
    if tokens:
        yield Text(f"{first:>6}  ", "dim").append_text(_drawn(tokens))


def _branch(chain: Sequence[Token]) -> Text:
    return Text(f"{'':>6}  └ ", "dim").append_text(_drawn(chain))


def _drawn(tokens: Sequence[Token]) -> Text:
    line = Text()
    for index, token in enumerate(tokens):
        sign, style = _LOOKS[token.fate]
        if token.text is None:
            line.append(sign, style)
        else:
            line.append("│" if index else "", "dim").append(_visible(token.text), style)
    return line


def _visible(text: str) -> str:
    return text.replace("\n", "⏎").replace("\t", "⇥") or "∅"

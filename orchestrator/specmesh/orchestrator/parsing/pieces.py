"""The pieces of a model's message that parsers find in its text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class ContentPiece:
    """More of the content."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPiece:
    """More of the reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class CallPiece:
    """The beginning of call number ``index``, which has its ``name``, or more of its arguments."""

    index: int
    name: str = ""
    arguments: str = ""


Piece = ContentPiece | ReasoningPiece | CallPiece


def merged(pieces: Iterable[Piece]) -> list[Piece]:
    """Return ``pieces`` with those joined that follow each other and belong together."""
    found: list[Piece] = []
    same: list[Piece] = []
    for piece in pieces:
        if same and not _belong_together(same[0], piece):
            found.append(_joined(same))
            same = []
        same.append(piece)
    return [*found, _joined(same)] if same else found


def _belong_together(first: Piece, piece: Piece) -> bool:
    if isinstance(first, CallPiece):
        return isinstance(piece, CallPiece) and piece.index == first.index
    return type(piece) is type(first)


def _joined(same: list[Piece]) -> Piece:
    first = same[0]
    if isinstance(first, CallPiece):
        arguments = (each.arguments for each in same if isinstance(each, CallPiece))
        return replace(first, arguments="".join(arguments))
    texts = (each.text for each in same if not isinstance(each, CallPiece))
    return replace(first, text="".join(texts))

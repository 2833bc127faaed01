"""What parsers find in answers, however the text is split."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from specmesh.orchestrator.parsing.answer_parser import AnswerStyle
from specmesh.orchestrator.parsing.argument_types import argument_types
from specmesh.orchestrator.parsing.pieces import (
    CallPiece,
    ContentPiece,
    Piece,
    ReasoningPiece,
    merged,
)
from specmesh.orchestrator.parsing.reasoning import REASONING_FORMATS
from specmesh.orchestrator.parsing.registry import tool_formats

PARAMETERS = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "array", "items": {"type": "integer"}},
            "note": {"$ref": "#/$defs/note"},
        },
        "$defs": {"note": {"type": "string"}},
    },
    "add": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"anyOf": [{"type": "number"}]}},
    },
}
TOOLS = {name: argument_types(each) for name, each in PARAMETERS.items()}


def style(tools: str = "", reasoning: str = "") -> AnswerStyle:
    return AnswerStyle(tool_formats().get(tools), REASONING_FORMATS.get(reasoning), TOOLS)


def parsed(written: AnswerStyle, texts: Sequence[str], prompt: str = "") -> list[Piece]:
    """All pieces of an answer whose text comes as ``texts``."""
    parser = written.parser(prompt)
    pieces = [piece for text in texts for piece in parser.push(text)]
    return merged([*pieces, *parser.end()])


def message(pieces: Sequence[Piece]) -> tuple[str, list[tuple[str, str]], str]:
    """The content, the calls and the reasoning."""
    content = "".join(each.text for each in pieces if isinstance(each, ContentPiece))
    reasoning = "".join(each.text for each in pieces if isinstance(each, ReasoningPiece))
    calls: dict[int, tuple[str, str]] = {}
    for piece in pieces:
        if isinstance(piece, CallPiece):
            name, arguments = calls.get(piece.index, ("", ""))
            calls[piece.index] = (name + piece.name, arguments + piece.arguments)
    assert list(calls) == list(range(len(calls)))
    return content, list(calls.values()), reasoning


@st.composite
def split(draw: st.DrawFn, text: str) -> list[str]:
    """``text`` in pieces."""
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]

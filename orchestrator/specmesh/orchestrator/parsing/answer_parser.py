"""The parser of one answer, and what the mesh knows about how its model writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from specmesh.orchestrator.parsing.argument_types import ArgumentTypes
from specmesh.orchestrator.parsing.pieces import ContentPiece, Piece, merged
from specmesh.orchestrator.parsing.reasoning import ReasoningFormat, ReasoningParser
from specmesh.orchestrator.parsing.tool_format import CallParser, ToolFormat


@dataclass(frozen=True, slots=True)
class AnswerStyle:
    """The formats in which an answer is written; None for parts that it does not have."""

    tools: ToolFormat | None = None
    reasoning: ReasoningFormat | None = None
    tool_types: Mapping[str, ArgumentTypes] = field(default_factory=dict)
    """The types of the arguments of each tool that the model may call, by name."""
    calls_only: bool = False
    """True if the answer is held to be calls alone, after reasoning."""

    @property
    def is_parsed(self) -> bool:
        """True if the answer is more than its text."""
        return self.tools is not None or self.reasoning is not None

    @property
    def markers(self) -> frozenset[str]:
        """The markers of the formats."""
        reasoning = self.reasoning
        return frozenset().union(
            self.tools.markers if self.tools else (),
            (reasoning.begin, reasoning.end) if reasoning else (),
        )

    def parser(self, prompt: str) -> AnswerParser:
        """Return the parser of an answer to a prompt that ends with ``prompt``."""
        reasoning = None
        if self.reasoning is not None:
            has_begun = self.reasoning.has_begun(prompt)
            reasoning = ReasoningParser(self.reasoning, has_begun=has_begun)
        tools = None if self.tools is None else self.tools.parser(self.tool_types)
        return AnswerParser(reasoning, tools, calls_only=self.calls_only)


class AnswerParser:
    """Parses the text of an answer, which comes in pieces: first the reasoning, then the calls in
    what is left. In an answer of ``calls_only`` what might begin a call at the end is one that was
    cut off."""

    def __init__(
        self, reasoning: ReasoningParser | None, tools: CallParser | None, *, calls_only: bool
    ) -> None:
        self._reasoning = reasoning
        self._tools = tools
        self._calls_only = calls_only

    @property
    def is_reasoning(self) -> bool:
        """True while the text is reasoning."""
        return self._reasoning is not None and self._reasoning.is_open

    def push(self, text: str) -> list[Piece]:
        """Return what is certain now that ``text`` has followed."""
        found = [ContentPiece(text)] if self._reasoning is None else self._reasoning.push(text)
        return merged(self._with_calls(found))

    def end(self) -> list[Piece]:
        """Return what was held back, now that no text follows."""
        found = [] if self._reasoning is None else self._reasoning.end()
        rest = [*self._with_calls(found), *(() if self._tools is None else self._tools.end())]
        if self._calls_only:
            rest = [piece for piece in rest if not isinstance(piece, ContentPiece)]
        return merged(rest)

    def _with_calls(self, found: Sequence[Piece]) -> Iterator[Piece]:
        for piece in found:
            if self._tools is not None and isinstance(piece, ContentPiece):
                yield from self._tools.push(piece.text)
            else:
                yield piece

"""Reasoning, which models write between markers before their message."""

from __future__ import annotations

from dataclasses import dataclass

from specmesh.orchestrator.parsing.call_rules import CallRules
from specmesh.orchestrator.parsing.character_parser import CharacterParser, Reading, SpaceTrimmer
from specmesh.orchestrator.parsing.pieces import ContentPiece, ReasoningPiece


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """A format by its name, with the markers before and after the reasoning."""

    name: str
    begin: str
    end: str

    def is_of(self, template: str) -> bool:
        """Return whether the source of a chat template shows that its model reasons so."""
        return self.begin in template or self.end in template

    def has_begun(self, prompt: str) -> bool:
        """Return whether the end of ``prompt`` begins the reasoning of the answer."""
        return prompt.rstrip().endswith(self.begin)

    def rules(self, rules: CallRules) -> str:
        """Return the rules of a grammar, in Lark's notation, whose rules ``reasoning`` and ``rest``
        are all reasoning of an answer, and what is left of it behind the marker that begins it;
        ``unended`` is the rest of one that does not end."""
        return f"""
reasoning: {rules.marker(self.begin)} rest
rest: thought lines
{rules.text_up_to(self.end, "thought")}
lines: /\\n{{0,2}}/
unended: /(?s:.*)/
"""


REASONING_FORMATS = {
    each.name: each
    for each in (
        ReasoningFormat("think", "<think>", "</think>"),
        ReasoningFormat("mistral", "[THINK]", "[/THINK]"),
    )
}


class ReasoningParser(CharacterParser):
    """Tells the reasoning at the beginning of a message from the rest, which is content here; white
    space beside the markers belongs to neither. ``has_begun`` if the prompt begins the reasoning.
    """

    def __init__(self, written: ReasoningFormat, *, has_begun: bool) -> None:
        self.is_open = has_begun
        """True between the beginning of the reasoning and its end."""
        self._written = written
        super().__init__()

    def _parse(self) -> Reading[None]:
        if (yield from self._begins()) or self.is_open:
            self.is_open = True
            trimmer = SpaceTrimmer(at_marker=True)

            def say(text: str) -> None:
                if certain := trimmer.text(text):
                    self._pieces.append(ReasoningPiece(certain))

            if not (yield from self._up_to((self._written.end,), say)):
                say(self._taken_back())
                return
            self.is_open = False
            self._held.clear()
            yield from self._after_space()
            self._read_again(1)
            self._held.clear()
        while (yield from self._next()):
            self._pieces.append(ContentPiece(self._taken_back()))

    def _begins(self) -> Reading[bool]:
        """Read the marker before the reasoning; return False if there is none, so that what was
        read is read again."""
        marker, read = self._written.begin, ""
        while character := (yield from self._next()):
            if not read and character.isspace():
                continue
            read += character
            if read == marker:
                self._held.clear()
                return True
            if not marker.startswith(read):
                break
        self._read_again(len(self._held))
        return False

"""A format in which models write calls of tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from specmesh.orchestrator.parsing.argument_types import ArgumentTypes
from specmesh.orchestrator.parsing.call_rules import CallRules, whole_arguments
from specmesh.orchestrator.parsing.pieces import Piece


class CallParser(Protocol):
    """Finds the calls in a message whose text comes in pieces. How the text is split must make no
    difference to all pieces of a kind together."""

    def push(self, text: str) -> list[Piece]:
        """Return what is certain now that ``text`` has followed."""

    def end(self) -> list[Piece]:
        """Return what was held back, now that no text follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """A format by its name."""

    name: str
    markers: frozenset[str]
    """The texts that mark calls. Those that are special tokens of the model are kept in the text
    that is parsed."""
    is_of: Callable[[str], bool]
    """Tells from the source of a chat template whether its model writes calls in this format."""
    parser: Callable[[Mapping[str, ArgumentTypes]], CallParser]
    """Makes a parser for one message of a model that may call the tools of these names, whose
    arguments have these types."""
    is_typed: bool = False
    """True if the parser has to know the types of arguments."""
    rules: Callable[[CallRules], str] | None = None
    """Writes the rules of a grammar, in Lark's notation, whose rule ``calls`` is a message that the
    parser reads as calls alone; None for a format in which no call can be demanded."""
    begins: Sequence[str] = ()
    """The markers that begin calls in the midst of text; empty for a format that can't tell calls
    from text by their beginning."""
    call: str = "call"
    """The rule of ``rules`` for what begins with one of ``begins``."""
    arguments: Callable[[CallRules, int, Mapping[str, Any] | None], Sequence[str]] = whole_arguments
    """Returns the lines of the rules for the arguments of the tool at a place of ``names``, which
    are valid under a schema, if there is one. Raises ValueError for a schema that can't be
    enforced."""
    names: re.Pattern[str] = re.compile(".+", re.DOTALL)
    """The names of tools that the format can express."""

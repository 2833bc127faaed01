"""The fate of every token that was drafted for an answer, reconstructed from its spans.

The orchestrator numbers the tokens (``traced_tokens``), so that the drafts, verdicts and commits
of one token can be matched. Texts are present only if it was configured to record them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from specmesh.serving import conventions as names
from specmesh.traces.analysis.token_numbers import streams
from specmesh.traces.spans import Span


class Fate(StrEnum):
    """The fate of a token."""

    ACCEPTED = "accepted"
    RECOVERED = "recovered"
    BONUS = "bonus"
    UNCHECKED = "unchecked"
    REJECTED = "rejected"
    """The target verified and rejected it."""
    CANCELLED = "cancelled"
    """It was drafted after a token that turned out to be wrong, and never verified."""
    UNUSED = "unused"
    """It was drafted beyond the end of the answer."""


COMMITTED = frozenset({Fate.ACCEPTED, Fate.RECOVERED, Fate.BONUS, Fate.UNCHECKED})
WASTED = frozenset({Fate.REJECTED, Fate.CANCELLED, Fate.UNUSED})


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the tree. ``text`` is None if texts were not recorded."""

    number: int
    parent: int
    """Number of its parent; 0 is the beginning of the answer."""
    fate: Fate
    text: str | None


@dataclass(frozen=True, slots=True)
class TracedTokenTree:
    """The tokens of an answer, and the wasted draft tokens."""

    committed: tuple[Token, ...]
    """The answer, from its beginning."""
    below: Mapping[int, Sequence[Token]]
    """The wasted children of each token, by its number."""

    def counts(self) -> dict[str, int]:
        """Count the tokens of each fate, and those ``drafted`` and ``wasted`` in total."""
        wasted = [token for tokens in self.below.values() for token in tokens]
        found = Counter(token.fate for token in (*self.committed, *wasted))
        drafted = found[Fate.ACCEPTED] + found[Fate.UNCHECKED] + len(wasted)
        each = {fate.value: found[fate] for fate in Fate}
        return {"committed": len(self.committed), "drafted": drafted, **each, "wasted": len(wasted)}

    def branches(self, number: int) -> list[list[Token]]:
        """Return the wasted tokens below a token as chains; a new chain begins at each fork."""
        chains = []
        heads = list(self.below.get(number, ()))
        while heads:
            chain = [heads.pop(0)]
            while below := self.below.get(chain[-1].number):
                chain.append(below[0])
                heads += below[1:]
            chains.append(chain)
        return chains


def token_tree(spans: Sequence[Span]) -> TracedTokenTree | None:
    """Build the tree of a trace; None if its spans have no token numbers. Several streams follow
    each other, and their tokens must be ``numbered_apart``."""
    tree = _Read(spans)
    return tree.result() if tree.fates else None


class _Read:
    def __init__(self, spans: Sequence[Span]) -> None:
        self.parents: dict[int, int] = {}
        self.texts: dict[int, str] = {}
        self.judged: set[int] = set()
        self.fates: dict[int, Fate] = {}
        self.order: list[int] = []
        self.ends: set[int] = set()
        for stream in streams(spans):
            for span in stream:
                if names.TREE_NODES in span.attributes:
                    self._drafted(span)
                if names.COMMITTED_NODES in span.attributes:
                    self._committed(span)
            self.ends.add(self.order[-1] if self.order else 0)

    def result(self) -> TracedTokenTree:
        """Return the tree, with the fates of the tokens that were not committed."""
        below: dict[int, list[Token]] = defaultdict(list)
        for number in self.parents.keys() - self.fates.keys():
            token = self._token(number, self._wasted(number))
            below[token.parent].append(token)
        committed = tuple(self._token(number, self.fates[number]) for number in self.order)
        return TracedTokenTree(committed, below)

    def _drafted(self, span: Span) -> None:
        nodes = span.numbers(names.TREE_NODES)
        self._texts(nodes, span.attributes.get(names.TREE_TEXTS))
        for number, parent in zip(nodes, span.numbers(names.TREE_PARENTS), strict=False):
            # Parents are numbered first. Traces of other programs could have cycles.
            if parent < number:
                self.parents[number] = parent
        if names.VERDICT_NEXT in span.attributes:
            self.judged.update(nodes)

    def _committed(self, span: Span) -> None:
        nodes = span.numbers(names.COMMITTED_NODES)
        self._texts(nodes, span.attributes.get(names.COMMITTED_TEXTS))
        kinds = span.attributes.get(names.COMMITTED_KINDS)
        for number, kind in zip(nodes, kinds if isinstance(kinds, tuple) else (), strict=False):
            if kind in COMMITTED:
                self.parents[number] = self.order[-1] if self.order else 0
                self.fates[number] = Fate(str(kind))
                self.order.append(number)

    def _texts(self, nodes: Iterable[int], texts: object) -> None:
        if isinstance(texts, tuple):
            self.texts |= zip(nodes, map(str, texts), strict=False)

    def _wasted(self, number: int) -> Fate:
        if number in self.judged:
            return Fate.REJECTED
        while number in self.parents and number not in self.fates:
            number = self.parents[number]
        return Fate.UNUSED if number in self.ends else Fate.CANCELLED

    def _token(self, number: int, fate: Fate) -> Token:
        return Token(number, self.parents[number], fate, self.texts.get(number))

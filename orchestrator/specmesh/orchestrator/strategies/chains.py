"""What DSI knows of each drafter, its chain, and of each verification under way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.drafting import TopK, confidence
from specmesh.decoding.predict.acceptance_rate import AcceptanceRate, Exploration
from specmesh.decoding.predict.platt import OnlinePlatt
from specmesh.decoding.predict.predictors import DraftOutcome, accepted_counts
from specmesh.decoding.sampling import Distribution
from specmesh.decoding.trees.tree import TokenTree
from specmesh.orchestrator.strategies.base import Drafted, DrafterName, TaskId
from specmesh.orchestrator.strategies.branches import Branch, likeliest_branches
from specmesh.orchestrator.strategies.kit.draft_chain import DraftChain

HEADS = -1
"""Stands for the target's heads where chains name their drafters."""


@dataclass(slots=True)
class Chain:
    """One drafter's guess at the answer from position ``start`` on, and the draft under way."""

    drafter: DrafterName
    start: int = 0
    tokens: list[int] = field(default_factory=list)
    choices: list[TopK | None] = field(default_factory=list)
    """The drafter's likeliest tokens in the place of each of ``tokens``."""
    distributions: dict[int, Distribution] = field(default_factory=dict)
    """What the token at a position was drawn from."""
    confidences: list[float] = field(default_factory=list)
    """The drafter's confidence in each of ``tokens`` (see ``confidence``)."""
    calibration: OnlinePlatt = field(default_factory=OnlinePlatt)
    """How likely its tokens are accepted, given their confidences."""
    acceptance: AcceptanceRate = field(default_factory=AcceptanceRate)
    """How often its tokens are accepted."""
    exploration: Exploration = field(default_factory=Exploration)
    exploring: bool = False
    """The last draft was made although it wasn't expected to pay."""
    task: TaskId | None = None
    task_start: int = 0
    silent: bool = False
    """Not to be drafted on until more is committed: the drafter had no token to give, or
    drafting is not expected to pay."""
    far_ahead: bool = False
    """It has more tokens than verifications can use; drafted on once half of them are."""

    @property
    def end(self) -> int:
        """The position after its last token."""
        return self.start + len(self.tokens)

    def between(self, start: int, end: int) -> tuple[int, ...]:
        """Its tokens at positions from ``start`` up to ``end``."""
        return tuple(self.tokens[start - self.start : end - self.start])

    def extend(self, event: Drafted) -> None:
        """Take in what was drafted."""
        for token, node in zip(event.token_ids, event.parents, strict=True):
            distribution, choices = event.distributions.get(node), event.choices.get(node)
            self.tokens.append(token)
            self.choices.append(choices)
            self.confidences.append(confidence(token, choices, distribution))
            if distribution is not None:
                self.distributions[self.task_start + node] = distribution

    def drawn_at(self, position: int) -> tuple[int, Distribution] | None:
        """Its token at ``position`` and what that was drawn from; rejection mode only."""
        drawn_from = self.distributions.get(position)
        return None if drawn_from is None else (self.tokens[position - self.start], drawn_from)

    def part(self, start: int, end: int) -> DraftChain:
        """What it has at positions from ``start`` up to ``end``."""
        part = slice(start - self.start, end - self.start)
        drawn_from = [self.distributions.get(position) for position in range(start, end)]
        return DraftChain(self.tokens[part], self.choices[part], drawn_from)

    def outcomes(self, part: DraftChain) -> list[Branch]:
        """Of a verification of a part of it."""
        rates = [self.calibration.latest(each) for each in part.confidences]
        counts = np.array(accepted_counts(rates))
        return likeliest_branches(part, counts, self.acceptance.alpha)

    def chance(self, start: int) -> float:
        """The probability that all tokens from position ``start`` on are accepted."""
        return prod(map(self.calibration.latest, self.confidences[start - self.start :]))

    def learn(self, start: int, tokens: Sequence[int]) -> int:
        """Learn from ``tokens``, committed from position ``start`` on; returns how many of them
        it had drafted."""
        confidences = self.confidences[start - self.start :][: len(tokens)]
        accepted = _num_equal(self.between(start, self.end), tokens)
        trials = DraftOutcome(accepted, tuple(confidences)).trials
        self.calibration.learn(confidences, trials)
        self.acceptance.learn(trials)
        if self.exploring and accepted:
            self.exploration.won()
        return accepted

    def start_over(self, position: int) -> None:
        """Drop all its tokens; the next is drafted for ``position``."""
        self.start = self.task_start = position
        self.task, self.far_ahead = None, False
        self.tokens, self.choices, self.distributions, self.confidences = [], [], {}, []


@dataclass(slots=True)
class InFlightVerification:
    """A verification of ``tokens[start - origin:]``, which assumes those before.

    The first of ``tokens`` has position ``origin``, the number of tokens committed when it left.
    Its verdict gives the tokens at positions ``start`` to ``end``, both included. ``tree`` has
    those that are verified, and perhaps second choices beside them.
    """

    drafter: DrafterName
    """Whose chain it verifies."""
    origin: int
    start: int
    tokens: tuple[int, ...]
    tree: TokenTree
    verdict: Verdict | None = None
    """None until it ends."""
    next_draft: Drafted | None = None
    """What heads have drafted below the verdict's next token."""

    @property
    def end(self) -> int:
        """The position after the tokens it verifies, where a bonus token goes."""
        return self.origin + len(self.tokens)

    def assumed(self, position: int) -> tuple[int, ...]:
        """Its tokens from ``position`` on, verified by it or not."""
        return self.tokens[position - self.origin :]

    def goes_on_after(self, text: Sequence[int]) -> bool:
        """Whether its verdict tells a token after ``text``, the answer so far. If that has come to
        one of its second choices, the choice takes the place of the tokens from there on."""
        since = tuple(text[self.origin :])
        path = self.tokens[: self.start - self.origin]
        if since[: len(path)] != path[: len(since)]:
            return False
        node = 0
        for token in since[len(path) :]:
            child = self.tree.child_with(node, token)
            if child is None:
                return False
            node = child
        if since != self.tokens[: len(since)]:
            self.tokens = since
        return True

    def asks_after(self, position: int, tokens: tuple[int, ...]) -> bool:
        """Whether it verifies a draft token after ``tokens``, the first at ``position``."""
        at = position + len(tokens)
        return self.start <= at < self.end and self.assumed(position)[: len(tokens)] == tokens

    def accepted(self) -> tuple[int, ...]:
        """The tokens from ``start`` on that the target accepts; there must be a verdict."""
        assert self.verdict is not None
        return self.tree.tokens_on(self.verdict.accepted_nodes)


def _num_equal(drafted: Iterable[int], tokens: Iterable[int]) -> int:
    """How many tokens the two have in common before they part."""
    count = 0
    for ours, theirs in zip(drafted, tokens, strict=False):
        if ours != theirs:
            break
        count += 1
    return count

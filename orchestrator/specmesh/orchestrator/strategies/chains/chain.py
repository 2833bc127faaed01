"""DSI's state: the chain of each drafter, and each verification under way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from specmesh.decoding.drafting import TopK, confidence
from specmesh.decoding.predict.acceptance_rate import AcceptanceRate
from specmesh.decoding.predict.platt import OnlinePlatt
from specmesh.decoding.predict.predictors import DraftOutcome, accepted_counts
from specmesh.decoding.sampling import Distribution
from specmesh.orchestrator.strategies.branches import Branch, likeliest_branches
from specmesh.orchestrator.strategies.commands import TaskId
from specmesh.orchestrator.strategies.events import Drafted, DrafterName
from specmesh.orchestrator.strategies.kit.draft_chain import DraftChain

HEADS = -1
"""Names the target's heads as the drafter of a chain."""


@dataclass(slots=True)
class Chain:
    """One drafter's guess at the answer from position ``start`` on, and its current draft."""

    drafter: DrafterName
    start: int = 0
    tokens: list[int] = field(default_factory=list)
    choices: list[TopK | None] = field(default_factory=list)
    """The drafter's likeliest tokens at the position of each of ``tokens``."""
    distributions: dict[int, Distribution] = field(default_factory=dict)
    """The distribution that the token at each position was drawn from."""
    confidences: list[float] = field(default_factory=list)
    """The drafter's confidence in each of ``tokens`` (see ``confidence``)."""
    calibration: OnlinePlatt = field(default_factory=OnlinePlatt)
    """Maps the confidence in a token to its probability of being accepted."""
    acceptance: AcceptanceRate = field(default_factory=AcceptanceRate)
    """The rate at which its tokens are accepted."""
    task: TaskId | None = None
    task_start: int = 0
    silent: bool = False
    """The chain is not extended until more is committed: the drafter had no token to give, or
    drafting is not expected to pay."""
    far_ahead: bool = False
    """The chain has more tokens than verifications can use; it is extended again once half of them
    are used."""

    trial_credit: float = 0.0
    """The verifications that the budget for trials gets back if the token of its draft is accepted;
    0 unless that draft is a trial, which is not expected to pay."""

    @property
    def end(self) -> int:
        """The position after its last token."""
        return self.start + len(self.tokens)

    def between(self, start: int, end: int) -> tuple[int, ...]:
        """Return its tokens at positions from ``start`` up to ``end``."""
        return tuple(self.tokens[start - self.start : end - self.start])

    def extend(self, event: Drafted) -> None:
        """Append the drafted tokens."""
        for token, node in zip(event.token_ids, event.parents, strict=True):
            distribution, choices = event.distributions.get(node), event.choices.get(node)
            self.tokens.append(token)
            self.choices.append(choices)
            self.confidences.append(confidence(token, choices, distribution))
            if distribution is not None:
                self.distributions[self.task_start + node] = distribution

    def drawn_at(self, position: int) -> tuple[int, Distribution] | None:
        """Return its token at ``position`` and the distribution that was drawn from; None outside
        rejection mode."""
        drawn_from = self.distributions.get(position)
        return None if drawn_from is None else (self.tokens[position - self.start], drawn_from)

    def part(self, start: int, end: int) -> DraftChain:
        """Return the part at positions from ``start`` up to ``end``."""
        part = slice(start - self.start, end - self.start)
        drawn_from = [self.distributions.get(position) for position in range(start, end)]
        return DraftChain(self.tokens[part], self.choices[part], drawn_from)

    def outcomes(self, part: DraftChain) -> list[Branch]:
        """Return the possible outcomes of verifying ``part``, the likeliest first."""
        rates = [self.calibration.latest(each) for each in part.confidences]
        counts = np.array(accepted_counts(rates))
        return likeliest_branches(part, counts, self.acceptance.alpha)

    def chance(self, start: int) -> float:
        """Return the probability that all tokens from position ``start`` on are accepted."""
        return prod(map(self.calibration.latest, self.confidences[start - self.start :]))

    def learn(self, start: int, tokens: Sequence[int]) -> int:
        """Learn from ``tokens``, committed from position ``start`` on; return how many of them it
        had drafted."""
        confidences = self.confidences[start - self.start :][: len(tokens)]
        accepted = _num_equal(self.between(start, self.end), tokens)
        trials = DraftOutcome(accepted, tuple(confidences)).trials
        self.calibration.learn(confidences, trials)
        self.acceptance.learn(trials)
        if self.trial_credit and trials:
            self.acceptance.exploration.won(accepted * self.trial_credit)
            self.trial_credit = 0.0
        return accepted

    def drop_committed(self, position: int) -> None:
        """Drop its tokens before ``position``, which are committed."""
        num = position - self.start
        for dropped in range(self.start, position):
            self.distributions.pop(dropped, None)
        del self.tokens[:num], self.choices[:num], self.confidences[:num]
        self.start = position

    def start_over(self, position: int) -> None:
        """Drop all its tokens; the next one is drafted for ``position``."""
        self.start = self.task_start = position
        self.task, self.far_ahead, self.trial_credit = None, False, 0.0
        self.tokens, self.choices, self.distributions, self.confidences = [], [], {}, []


def _num_equal(drafted: Iterable[int], tokens: Iterable[int]) -> int:
    """Return the length of the common prefix of the two sequences."""
    count = 0
    for ours, theirs in zip(drafted, tokens, strict=False):
        if ours != theirs:
            break
        count += 1
    return count

"""Filtered decoding: the drafter's token where it is confident, otherwise the target's.

CALID (Hua et al.), Algorithm 2: the drafter's distribution Q_i gives a confidence; above the
threshold token i is drawn from Q_i and the target never sees it, otherwise it is drawn from the
target's P_i. This is the only strategy whose text may differ from the target's. At a constant
threshold

- at temperature 0, it is the text of Algorithm 2 for distributions that are certain of one token;
- in rejection mode, it has the distribution of Algorithm 2's text, except that Q_i is cut to its
  likeliest ``MAX_CANDIDATES`` tokens: what the target may have to verify must be sent, and whether
  it has to is unknown when the token is drawn;
- in coupled mode it differs. The confidence is not that of Q_i but of Q_i with the noise that the
  target uses too: it estimates whether the drawn token would be the target's. The seed therefore
  decides at which positions the draft is kept, and over all seeds the kept tokens are no sample of
  Q_i.

Several tokens are drafted before the confidence service assesses them. The text is the same as with
one token at a time, because Q_i stays valid as long as all tokens before it were committed. For the
same reason the first run of unsure positions is verified together, as in speculative decoding, and
the rest of the draft is used if the target agreed with them. Unless the request sets a lookahead, a
draft continues for as long as it pays.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.predict.lookahead import DraftStop
from specmesh.decoding.predict.platt import OnlinePlatt
from specmesh.decoding.trees.tree import TokenTree
from specmesh.orchestrator.strategies.base import Goal, Strategy
from specmesh.orchestrator.strategies.commands import Assess, Command, Draft, GiveUp, TaskId, Verify
from specmesh.orchestrator.strategies.events import (
    Assessed,
    Capacity,
    Drafted,
    Event,
    Failed,
    Released,
    Verified,
)
from specmesh.orchestrator.strategies.kit.draft_chain import DraftChain
from specmesh.orchestrator.strategies.kit.growing_tree import GrowingTree
from specmesh.orchestrator.strategies.kit.progress import Progress

_MAX_DEPTH = 16
"""Limit however sure the drafter is, because the user sees nothing of a draft before it ends."""
WORTH = 0.2
"""A draft ends at a token that is less likely than this to be committed: drafting a token costs
about this share of the round that it may save."""
NUM_CHOICES = 2
"""The scores are computed from the two likeliest tokens and the entropy."""


class ConfidenceFilter(Strategy):
    """Runs one task at a time: a draft, the assessment of the rest of it, or the verification of
    the first run of tokens that were not kept."""

    needs_confidence = True
    lossless = False
    options = frozenset({"lookahead", "filter"})

    def __init__(self, goal: Goal) -> None:
        self._fixed = goal.lookahead
        self._standing = OnlinePlatt()
        """Maps the confidence in a token to its probability of being committed, kept or verified.
        """
        self._progress = Progress(goal)
        self._last_task: TaskId = 0
        self._growth = GrowingTree(task=0)
        self._chain = DraftChain()
        """Drafted tokens that follow the committed ones."""
        self._assessing: TaskId | None = None
        self._verifying: TaskId | None = None
        self._num_unsure = 0
        """Number of tokens at the start of the chain that the target verifies."""

    def start(self, capacity: Capacity) -> Sequence[Command]:  # noqa: ARG002 - one of each is enough
        """Return the first draft."""
        return [self._draft()]

    def handle(self, event: Event) -> Sequence[Command]:
        """Assess a draft; verify what is not kept once it is released."""
        if isinstance(event, Drafted | Failed) and event.task == self._growth.task:
            return self._grow(event)
        match event:
            case Assessed(task=self._assessing, keeps=keeps):
                return self._keep(keeps)
            case Released(task=self._assessing) | Failed(task=self._assessing):
                return [self._verify()]
            case Verified(task=self._verifying, verdict=verdict):
                return self._conclude(verdict)
            case Failed(task=self._verifying):
                return [GiveUp(event.task)]
            case _:
                return []

    def _draft(self) -> Command:
        depth = min(self._fixed or _MAX_DEPTH, self._progress.remaining)
        stop = None if self._fixed else DraftStop(WORTH, self._standing.latest)
        self._growth = GrowingTree(self._new_task())
        return Draft(self._growth.task, (), depth, depth, num_choices=NUM_CHOICES, stop=stop)

    def _grow(self, event: Drafted | Failed) -> list[Command]:
        """Append more of the draft; if it failed, its earlier tokens still count."""
        if self._growth.ended:
            return []
        if isinstance(event, Drafted):
            self._growth.extend(event)
        else:
            self._growth.ended = True
        if not self._growth.ended:
            return []
        self._chain = self._growth.chain_below(0)
        return self._go_on()

    def _go_on(self) -> list[Command]:
        """Have the whole chain assessed; if that fails, all of it is verified."""
        self._num_unsure = len(self._chain.tokens)
        positions = tuple(choices for choices in self._chain.choices if choices is not None)
        if not positions or len(positions) < len(self._chain.choices):  # cannot be assessed
            return [self._verify()]
        self._assessing = self._new_task()
        return [Assess(self._assessing, (), positions)]

    def _keep(self, keeps: Sequence[bool]) -> list[Command]:
        """Commit the tokens that are kept, up to the first that is not."""
        num_kept = _leading(keeps, value=True)
        commands: list[Command] = []
        if num_kept:
            kept, self._chain = self._chain.first(num_kept), self._chain.after(num_kept)
            self._standing.learn(kept.confidences, repeat(True))
            commands += self._progress.commit(kept.tokens, 0, checked=False)
        self._num_unsure = _leading(keeps[num_kept:], value=False)
        if self._progress.ended or self._num_unsure:
            return commands
        self._assessing = None
        return [*commands, self._draft()]

    def _verify(self) -> Verify:
        """Ask the target for the unsure positions, with the draft tokens as guesses.

        The last position needs no guess, since it takes the target's token in any case. A token
        drawn in rejection mode is verified nevertheless, because it affects which position is last.
        """
        self._assessing = None
        self._verifying = self._new_task()
        guesses = self._chain.first(self._num_unsure)
        if guesses.tokens and guesses.distributions[-1] is None:
            guesses = guesses.first(len(guesses.tokens) - 1)
        return Verify(self._verifying, (), TokenTree.chain(guesses.tokens), guesses.drawn_from)

    def _conclude(self, verdict: Verdict) -> list[Command]:
        """Commit the target's tokens; continue with the draft if it agrees with all of them.

        The bonus token after the unsure positions is not used, because it has not been decided
        whether the draft token at that position is kept.
        """
        self._verifying = None
        num_accepted = len(verdict.accepted_nodes)
        chain, self._chain = self._chain, DraftChain()
        tokens = [*chain.tokens[:num_accepted], verdict.next_token][: max(1, self._num_unsure)]
        agreed = [drafted == token for drafted, token in zip(chain.tokens, tokens, strict=False)]
        self._standing.learn(chain.confidences, agreed)
        commands = self._progress.commit(tokens, num_accepted, recovered=verdict.recovered)
        if self._progress.ended:
            return commands
        if all(agreed):
            self._chain = chain.after(len(tokens))
        return commands + (self._go_on() if self._chain.tokens else [self._draft()])

    def _new_task(self) -> TaskId:
        self._last_task += 1
        return self._last_task


def _leading(keeps: Sequence[bool], *, value: bool) -> int:
    """Return how many of ``keeps`` are ``value`` before the first that is not."""
    return next((n for n, keep in enumerate(keeps) if keep is not value), len(keeps))

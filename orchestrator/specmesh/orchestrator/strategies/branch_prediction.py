"""Branch prediction: while the target verifies a draft, the next one starts where it may end.

Duan et al. 2024, Section 4.1: draft n tokens; predict the outcome of their verification; draft on
from there while the target verifies; continue that draft if the prediction was right, otherwise
fall back to the verified point. A right prediction hides the verification (Eq. 8, with its terms
corrected). Here several outcomes may be drafted on concurrently, as one batch of the drafter:
``num_branches`` = 1 is the paper's algorithm, all outcomes its exhaustive method (Section 6.4).

The paper's check Θ(δ, γ) = T − (δ − γ) t > 0 (Eq. 5) asks whether a draft that began at γ is past
the point δ up to which tokens are accepted. Here a branch begins with a guess of the token at γ, so
it is compared with the target's tokens one by one, and kept if it agrees and is ahead. In rejection
mode the branch after a fully accepted chain has drawn the next token already: that token is tried
before the bonus token (see ``decoding/bonus.py``).

With a ``width`` a verification also covers second choices, those of the likeliest outcomes: if the
target confirms one, the token after it is known too, without another verification. This is not done
in rejection mode, because there the drafter draws one token per position.

Where waiting for a draft does not pay, a verification is sent immediately, and drafting during it
costs no time. Where draft tokens are not worth verifying either, the target decodes on by itself,
except for what ``Exploration`` allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.predict.acceptance_rate import OTHER_OUTCOMES
from specmesh.decoding.predict.closed_forms import min_draft
from specmesh.decoding.predict.predictors import PREDICTORS, DraftOutcome, Predictor
from specmesh.decoding.predict.round_costs import PAYS
from specmesh.decoding.trees.tree import EMPTY
from specmesh.orchestrator.strategies.base import Goal, Strategy
from specmesh.orchestrator.strategies.branches import (
    Branch,
    likeliest_branches,
    plant,
    with_second_choices,
)
from specmesh.orchestrator.strategies.chains.dsi_rate import IN_VAIN
from specmesh.orchestrator.strategies.commands import Cancel, Command, Draft, GiveUp, TaskId, Verify
from specmesh.orchestrator.strategies.events import Capacity, Drafted, Event, Failed, Verified
from specmesh.orchestrator.strategies.kit.ahead import pays_ahead
from specmesh.orchestrator.strategies.kit.draft_chain import DraftChain
from specmesh.orchestrator.strategies.kit.further import num_further
from specmesh.orchestrator.strategies.kit.growing_tree import GrowingTree
from specmesh.orchestrator.strategies.kit.pace import levels_per_message
from specmesh.orchestrator.strategies.kit.progress import Progress

DEFAULT_PREDICTOR = "confidence"
NUM_CHOICES = 4
"""Number of likeliest tokens that the drafter reports for each position."""
MAX_NODES = 512
"""Limit of the drafted nodes, and so of the cost of an exhaustive draft."""
MAX_DEPTH = 256
"""Limit of one draft, however slow the target is."""


class BranchPrediction(Strategy):
    """Runs at most one draft and one verification. During a verification, all drafting starts from
    its possible outcomes, ``_branches``."""

    options = frozenset({"lookahead", "num_branches", "predictor", "width"})

    default_branches: ClassVar[int | None] = 1
    """Default of ``Goal.num_branches``; None drafts on from every token that the drafter reports.
    """

    def __init__(self, goal: Goal) -> None:
        self._goal = goal
        self._num_branches = goal.num_branches or self.default_branches
        self._predictor: Predictor = PREDICTORS[goal.predictor or DEFAULT_PREDICTOR](goal.seed)
        self._progress = Progress(goal)
        self._capacity = Capacity()
        self._last_task: TaskId = 0
        self._round = 0
        self._acceptance = goal.acceptance.rate()
        self._others = goal.acceptance.rate(OTHER_OUTCOMES)
        """The rate at which a branch is right where the chain is not; only others read it."""
        self._growth = GrowingTree(task=0)
        self._head = 0
        """The node of the growth at which the committed tokens end."""
        self._check: TaskId | None = None
        self._chain, self._tree = DraftChain(), EMPTY
        """The chain under verification, and the tree of it and second choices."""
        self._branches: list[tuple[Branch, int]] = []
        """The outcomes that are drafted on during the verification, each with its growth node."""

    def start(self, capacity: Capacity) -> Sequence[Command]:
        """Return the first draft, or a verification if drafting does not pay."""
        self._capacity = capacity
        return self._begin_round()

    def handle(self, event: Event) -> Sequence[Command]:
        """Verify a draft once it is long enough; on a verdict, continue the right branch."""
        match event:
            case Verified(task=self._check):
                return self._conclude(event)
            case Failed(task=task) if task == self._check:
                return [GiveUp(task)]
            case Drafted() if event.task == self._growth.task and not self._growth.ended:
                self._growth.extend(event)
            case Failed(task=task) if task == self._growth.task and not self._growth.ended:
                self._growth.ended = True
            case Capacity():
                self._capacity = event
                return []
            case _:
                return []
        return self._go_on() if self._check is None else []

    def _begin_round(self, decoding_on: TaskId | None = None) -> list[Command]:
        """Draft from the verified point, or verify nothing unless the target is ``decoding_on`` by
        that task and may go on."""
        depth, ahead = min(self._lookahead, self._room), 0
        if depth < 1:
            ahead = self._depth_ahead()
            if decoding_on is not None and not ahead:
                return []
        commands: list[Command] = [] if decoding_on is None else [Cancel(decoding_on)]
        if depth < 1:
            return commands + self._verify(DraftChain(), ahead)
        self._check = None
        self._growth, self._head = GrowingTree(self._new_task()), 0
        return [*commands, Draft(self._growth.task, (), depth, depth, num_choices=NUM_CHOICES)]

    def _go_on(self) -> list[Command]:
        """Verify the tokens after the verified point, once there are enough of them."""
        chain = self._growth.chain_below(self._head)
        if len(chain.tokens) < min(self._lookahead, self._room) and not self._growth.ended:
            return []
        commands: list[Command] = [] if self._growth.ended else [Cancel(self._growth.task)]
        if not chain.tokens and self._head:  # the branch was right but has no further tokens
            return commands + self._begin_round()
        chain = chain.first(min(self._room, self._num_worth))
        return commands + self._verify(chain, self._depth_ahead())

    def _verify(self, chain: DraftChain, depth_ahead: int) -> list[Command]:
        self._chain, self._check = chain, self._new_task()
        probabilities = self._predictor.distribution(chain.confidences, self._round)
        outcomes = likeliest_branches(chain, probabilities, self._acceptance.alpha)
        num_tokens = min(self._goal.width or 0, self._room)
        self._tree = with_second_choices(chain, outcomes, num_tokens)
        drafts = self._draft_on(outcomes, min(depth_ahead, self._room - 1))
        further = 0
        if not drafts and not self._tree.token_ids:
            further = num_further(self._capacity, self._progress.remaining)
        verify = Verify(
            *(self._check, (), self._tree, chain.drawn_from),
            drafting_on=not further,
            num_further=further,
            may_wait=further > 0,
            num_second_choices=len(self._tree) - len(chain.tokens),
        )
        return [verify, *drafts]

    def _draft_on(self, outcomes: Sequence[Branch], depth: int) -> list[Command]:
        """Draft on from the likeliest outcomes of the verification that is sent now."""
        self._growth, self._branches = GrowingTree(task=0), []
        if depth < 1:
            return []
        limit = MAX_NODES // depth
        least = IN_VAIN if self._goal.lookahead is None else 0.0
        likely = [each for each in outcomes if each.probability >= least]
        branches = likely[: min(self._num_branches or limit, limit)]
        if not branches:  # the drafter reported no choices where the predictor expects a rejection
            return []
        tree, from_nodes = plant(self._chain, branches)
        self._branches = list(zip(branches, from_nodes, strict=True))
        self._growth = GrowingTree(self._new_task(), tree)
        return [
            Draft(
                *(self._growth.task, (), depth),
                levels_per_message=levels_per_message(self._capacity, self._lookahead),
                tree=tree,
                from_nodes=from_nodes,
                num_choices=NUM_CHOICES,
            )
        ]

    def _conclude(self, event: Verified) -> list[Command]:
        """Commit; continue with the branch that was right, or start over."""
        verdict = event.verdict
        accepted = self._tree.tokens_on(verdict.accepted_nodes)
        tokens = (*accepted, self._next_token(verdict))
        # Second choices have higher node numbers than the chain.
        num_stand = sum(node <= len(self._chain.tokens) for node in verdict.accepted_nodes)
        self._round += 1
        self._learn(num_stand, tokens[num_stand])
        tokens += event.collected
        commands = self._progress.commit(tokens, len(accepted), recovered=verdict.recovered)
        if self._progress.ended:
            return commands
        if event.more:
            return commands + self._begin_round(decoding_on=event.task)
        self._check = None
        node = self._right_branch(num_stand, tokens[num_stand:])
        if self._branches and num_stand < len(self._chain.tokens):
            self._others.learn([node is not None])
        if node is not None:
            self._head = node
            return commands + self._go_on()
        if self._growth.task and not self._growth.ended:
            commands.append(Cancel(self._growth.task))
        return commands + self._begin_round()

    def _next_token(self, verdict: Verdict) -> int:
        """Return the token after the accepted ones; a bonus token first tries the branch's."""
        follows = self._follows
        if verdict.bonus is None or not follows.tokens or follows.distributions[0] is None:
            return verdict.next_token
        return verdict.bonus.meet([(follows.tokens[0], follows.distributions[0])])

    @property
    def _follows(self) -> DraftChain:
        """The token drafted after the chain, in case all of the chain is accepted."""
        nodes = (node for branch, node in self._branches if branch.guess is None)
        node = next(nodes, None)
        return DraftChain() if node is None else self._growth.chain_below(node).first(1)

    def _learn(self, num_accepted: int, next_token: int) -> None:
        outcome = DraftOutcome(num_accepted, self._chain.confidences)
        self._predictor.observe(outcome)
        self._acceptance.learn(outcome.trials)
        follows = self._follows.tokens
        if num_accepted == len(self._chain.tokens) and follows:
            self._acceptance.learn([follows[0] == next_token])

    def _right_branch(self, num_accepted: int, follows: Sequence[int]) -> int | None:
        """Return the growth node for this outcome: ``follows`` is the token after the accepted part
        of the chain and, if that was a second choice, the token after it."""
        for branch, node in self._branches:
            if branch.num_accepted == num_accepted and branch.guess in {None, follows[0]}:
                drafted = follows if branch.guess is None else follows[1:]
                return self._growth.below(node, drafted)
        return None

    @property
    def _room(self) -> int:
        """Number of draft tokens that the answer has room for."""
        return self._progress.draftable - len(self._progress.token_ids)

    @property
    def _lookahead(self) -> int:
        """Fewest tokens that a verification covers: the request's lookahead, or the best γ; 0 where
        waiting for a draft does not pay.

        After a wrong prediction the target waits for these tokens, so this is the γ of plain
        speculative decoding (Leviathan et al. 2023, Section 3.4) for the acceptance so far.
        """
        if self._goal.lookahead is not None:
            return self._goal.lookahead
        costs = self._capacity.drafter_costs
        if costs is None:  # a crowd that meets a new mesh must not fill its forwards
            return 1
        return costs.best_depth(self._acceptance.alpha, self._draft_ahead, PAYS)

    @property
    def _num_worth(self) -> int:
        """Number of a chain's tokens that are worth their time in a verification."""
        if self._goal.lookahead is not None:
            return MAX_DEPTH
        num_worth = self._acceptance.num_worth(self._capacity.token_cost)
        return int(min(MAX_DEPTH, self._capacity.most_tokens, num_worth))

    def _depth_ahead(self) -> int:
        """Return how many tokens to draft while the target verifies; 0 where that is useless or the
        answer has no room for them."""
        if self._room <= 1:
            return 0
        cost, trial = self._capacity.draft_cost, self._capacity.trial_cost
        if self._goal.lookahead is not None or cost is None or trial is None:
            return self._draft_ahead
        alpha, costs = self._acceptance.alpha, self._capacity.drafter_costs
        pays = cost < 1 and alpha > self._capacity.token_cost
        if pays and costs is not None and not self._lookahead:
            pays = pays_ahead(costs, alpha, self._num_worth)
        return self._draft_ahead if pays else int(self._acceptance.exploration.tries(trial))

    @property
    def _draft_ahead(self) -> int:
        """Longest branch: n = ⌈T/t⌉ (Eq. 14) tokens are free while the target works, but only those
        that are likely enough to be used are drafted."""
        target_s, drafter_s = self._capacity.target_s, self._capacity.drafter_s
        if target_s is None or drafter_s is None:
            return self._goal.lookahead or 1
        free = min(min_draft(target_s, drafter_s), MAX_DEPTH)
        if self._goal.lookahead is not None:
            return max(self._goal.lookahead, free)
        return max(1, int(min(free, self._acceptance.num_worth(IN_VAIN))))

    def _new_task(self) -> TaskId:
        self._last_task += 1
        return self._last_task


class Exhaustive(BranchPrediction):
    """Drafts on from every outcome that the drafter can name and that is not most unlikely."""

    default_branches = None

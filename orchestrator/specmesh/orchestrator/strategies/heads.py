"""Heads: the target drafts for itself. Each verdict brings the tree that is verified next.

The target's heads (Medusa, Cai et al. 2024; Hydra, EAGLE) guess from its hidden state at the last
token that it accepted. A verification can therefore answer with a draft of what follows its
verdict, and no drafter is used: a token costs one round trip. The first verification has nothing to
check; its verdict is the answer's first token and brings the first tree.

The form of a tree is decided as in ``tree.py``, from the time that heads take per level, but one
round earlier, since a tree is requested before the outcome of the previous one is known. A replica
without heads, or whose heads fail, answers without a tree, and the next verification has nothing to
check.

Rejection mode: children are drawn without replacement. The number of a node's children follows from
what they are drawn from and from tokens at earlier positions, and a drawn token is always verified
unless the answer ends before it. The size of a tree follows from positions that were committed when
it was requested. This keeps the rule in ``base.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from specmesh.decoding.predict.acceptance_rate import HEADS_CHAIN, HEADS_LEVELS
from specmesh.decoding.trees.best_chain import BestChain
from specmesh.decoding.trees.growth import TreeGrowth
from specmesh.decoding.trees.merge import DrawnTree
from specmesh.decoding.trees.plan import AdaptiveTree, TreeOutcome, TreePlan
from specmesh.decoding.trees.tree import EMPTY
from specmesh.orchestrator.strategies.base import Goal, Strategy
from specmesh.orchestrator.strategies.chain_ahead import trials_of
from specmesh.orchestrator.strategies.commands import (
    Cancel,
    Command,
    GiveUp,
    NextDraft,
    TaskId,
    Verify,
)
from specmesh.orchestrator.strategies.events import Capacity, Drafted, Event, Failed, Verified
from specmesh.orchestrator.strategies.kit.draft_tree import DraftTree
from specmesh.orchestrator.strategies.kit.further import num_further
from specmesh.orchestrator.strategies.kit.growing_tree import GrowingTree
from specmesh.orchestrator.strategies.kit.progress import Progress
from specmesh.orchestrator.strategies.tree import NUM_CHOICES

NOTHING = DraftTree(EMPTY, {}, {})


class Heads(Strategy):
    """Verifies one tree after the other, each drafted by the target's heads with the verdict on the
    previous one."""

    needs_drafter = asks_drafter = False
    needs_heads = True
    options = frozenset({"lookahead", "width"})

    def __init__(self, goal: Goal) -> None:
        self._progress = Progress(goal)
        self._capacity = Capacity()
        self._adaptive = AdaptiveTree(
            goal.lookahead, goal.width, goal.acceptance.rate(HEADS_LEVELS)
        )
        self._heads_acceptance = goal.acceptance.rate(HEADS_CHAIN)
        """The rate at which the target agrees with the heads' first choices."""
        self._last_task: TaskId = 0
        self._check: TaskId = 0
        """The current verification."""
        self._tree = EMPTY
        """The tree that it covers."""
        self._drafted = NOTHING
        """The part of that tree that the heads drafted."""
        self._first_choices: tuple[int, ...] = ()
        """The path of the heads' first choices in their latest tree."""
        self._plan: TreePlan | None = None
        """The plan by which that part was drafted."""
        self._next_plan: TreePlan | None = None
        """The plan by which the next tree is drafted."""

    def start(self, capacity: Capacity) -> Sequence[Command]:
        """Return a verification of nothing, which brings the first token and the first tree."""
        self._capacity = capacity
        return self._go_on((), NOTHING)

    def handle(self, event: Event) -> Sequence[Command]:
        """Commit the tokens of a verdict, and verify the tree that came with it."""
        match event:
            case Verified(task=self._check):
                return self._conclude(event)
            case Failed(task=self._check):
                return [GiveUp(self._check)]
            case Capacity():
                self._capacity = event
        return []

    def _conclude(self, event: Verified) -> list[Command]:
        verdict = event.verdict
        accepted = self._tree.tokens_on(verdict.accepted_nodes)
        said = (*accepted, *event.own_tokens)
        self._heads_acceptance.learn(trials_of(self._first_choices, said))
        self._adaptive.observe(self._outcome(said, event.tried), self._plan)
        commands = self._progress.commit(said, len(accepted), recovered=verdict.recovered)
        if self._progress.ended:
            return commands
        drafted, self._plan = self._fitting(event.next_draft), self._next_plan
        self._first_choices = BestChain.of(drafted.tree, {}).tree.token_ids
        return [*commands, *self._go_on(said, drafted, event.task if event.more else None)]

    def _outcome(self, said: tuple[int, ...], tried: tuple[int, ...] | None) -> TreeOutcome:
        """Return what the verification teaches about the heads' own tree: the target has ``said``
        these tokens, and a replica that verifies chains only has ``tried`` only these nodes of the
        verified tree."""
        own = self._drafted.tree
        accepted = own.follow(said[:-1])
        own_tried = None if tried is None else own.follow(self._tree.tokens_on(tried))
        return self._drafted.outcome(accepted, said[len(accepted)], own_tried)

    def _go_on(
        self,
        said: tuple[int, ...],  # noqa: ARG002 - used by overrides
        drafted: DraftTree,
        decoding_on: TaskId | None = None,
    ) -> list[Command]:
        """Verify what the heads have ``drafted`` below the tokens that the target has ``said``,
        unless the target is ``decoding_on`` by that task and may go on."""
        asked = self._next_draft()
        if decoding_on is not None and asked is None:
            return []
        verify = self._verify(drafted, drafted.drawn, asked)
        return [verify] if decoding_on is None else [Cancel(decoding_on), verify]

    def _verify(self, drafted: DraftTree, whole: DrawnTree, asked: NextDraft | None) -> Verify:
        """Verify ``whole``, all or part of which the heads have ``drafted``, and let them draft
        what is ``asked`` for."""
        self._check, self._tree, self._drafted = self._new_task(), whole.tree, drafted
        further = 0
        if asked is None and not whole.tree.token_ids:
            further = num_further(self._capacity, self._progress.remaining)
        return Verify(
            *(self._check, (), whole.tree, whole.distributions),
            next_draft=asked,
            num_further=further,
            may_wait=further > 0,
        )

    def _new_task(self) -> TaskId:
        self._last_task += 1
        return self._last_task

    def _next_draft(self) -> NextDraft | None:
        """Return the request for a draft below the verdict, which commits at least one token."""
        room, self._next_plan = self._room - 1, None
        if room < 1 or not self._may_have_heads:
            return None
        self._next_plan = plan = self._adaptive.plan(self._capacity.heads_costs)
        if plan is None:
            return None
        growth, num_choices = None, 1
        if plan.growth is not None:
            growth = TreeGrowth(min(plan.growth.max_nodes, room), plan.growth.least_worth)
            num_choices = min(NUM_CHOICES, growth.max_nodes)
        return NextDraft(min(plan.depth, room), growth, plan.stop, num_choices)

    @property
    def _may_have_heads(self) -> bool:
        """True unless the target is known and has no heads."""
        capacity = self._capacity
        return bool(capacity.heads_depth or capacity.heads_s is not None or not capacity.alone_s)

    def _fitting(self, drafted: Drafted | None) -> DraftTree:
        """Cut a draft to the answer's room: replicas only have KV cache for the longest possible
        answer, and the verdict may have committed several tokens."""
        if drafted is None:
            return NOTHING
        growth = GrowingTree(drafted.task)
        growth.extend(drafted)
        return growth.whole.first(max(0, self._room))

    @property
    def _room(self) -> int:
        """Number of tokens that may still be drafted."""
        return self._progress.draftable - len(self._progress.token_ids)

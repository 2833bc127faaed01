"""Heads and a drafter: one verification covers the drafts of both.

The target's heads draft a tree with each verdict, as in ``heads.py``. A drafter, if the mesh has
one, meanwhile runs ahead with a chain (``ChainAhead``). Its tokens at the time of a verdict are
merged with the heads' tree (SpecInfer's merge, ``decoding/trees/merge.py``), so no verification
waits for the drafter.

The chain starts right after the committed tokens, as the tree being verified does: it is worth most
where it differs from the guess of the heads. As long as the target agrees with the chain, it is
extended, even beyond what is being verified. Once the target disagrees or gets ahead of it, its
draft is cancelled and it starts anew. Its tokens are verified as far as they are worth their time,
and it runs only as far ahead as its tokens are likely enough to be used.

Without a drafter, or with one that fails, this is ``heads``. A replica without heads verifies the
chain alone, and a mesh whose replicas all lack heads refuses the strategy.

Rejection mode: the children of a node come from one source, the heads before the drafter, and which
of them are verified follows from earlier tokens alone (``decoding/trees/merge.py`` explains why).
The length of the chain follows from time and from tokens that are committed when it is merged. The
verdict's own token stands, since the heads have drafted below exactly that token: the drafter's
token is not tried in its place as in ``decoding/bonus.py``, and the chain continues only if the two
are equal. This keeps the rule in ``base.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specmesh.decoding.predict.acceptance_rate import DRAFTER
from specmesh.decoding.predict.closed_forms import expected_tokens
from specmesh.decoding.trees.merge import DrawnTree, merge
from specmesh.decoding.trees.plan import DEFAULT_WIDTH
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.chain_ahead import ChainAhead
from specmesh.orchestrator.strategies.chains.dsi_rate import IN_VAIN
from specmesh.orchestrator.strategies.chains.reach import DEFAULT_LOOKAHEAD
from specmesh.orchestrator.strategies.commands import Cancel, Command, Draft, TaskId
from specmesh.orchestrator.strategies.events import Capacity, Drafted, Event, Failed
from specmesh.orchestrator.strategies.heads import Heads
from specmesh.orchestrator.strategies.kit.ahead import pays_ahead
from specmesh.orchestrator.strategies.kit.draft_tree import DraftTree
from specmesh.orchestrator.strategies.kit.pace import levels_per_message

MAX_AHEAD = 256
"""Limit of the chain however good the drafter is; a draft may not have more levels."""


class HeadsAndDrafter(Heads):
    """Verifies the heads' trees, each merged with the drafter's chain after the same tokens."""

    asks_drafter = True

    def __init__(self, goal: Goal) -> None:
        super().__init__(goal)
        self._lookahead = goal.lookahead
        self._width = goal.width
        self._ahead = ChainAhead(goal.acceptance.rate(DRAFTER))
        self._alone = False
        """A draft has failed, and there is no sign of a working drafter."""

    def handle(self, event: Event) -> Sequence[Command]:
        """Keep drafted tokens until the verdict, then verify them."""
        match event:
            case Drafted(task=task) if task == self._ahead.task:
                self._ahead.extend(event)
                return []
            case Failed(task=task) if task == self._ahead.task:
                self._ahead.task = None
                self._alone = self._capacity.drafter_s is None
                return []
            case Capacity(drafter_s=float()):
                self._alone = False
        return super().handle(event)

    def _go_on(
        self, said: tuple[int, ...], drafted: DraftTree, decoding_on: TaskId | None = None
    ) -> list[Command]:
        commands: list[Command] = []
        if not self._ahead.advance(said):
            if self._ahead.task is not None:
                commands.append(Cancel(self._ahead.task))
            self._ahead.start_over()
        asked, depth = self._next_draft(), self._depth_on()
        if decoding_on is not None:
            if asked is None and not depth:
                return commands
            commands.append(Cancel(decoding_on))
        # Without a width each part has as many nodes as are worth it.
        num_nodes = min(self._width or DEFAULT_WIDTH + MAX_AHEAD, max(0, self._room))
        chain = self._ahead.first(min(self._num_worth, num_nodes))
        drafts = self._likelier_first(drafted.drawn, chain)
        verify = self._verify(drafted, merge(drafts, num_nodes), asked)
        if depth or self._ahead.task is not None or self._ahead.path:
            verify = replace(
                verify, num_further=0, may_wait=False
            )  # the drafter's tokens are to be verified
        return [*commands, verify, *([self._draft_on(depth)] if depth else [])]

    def _likelier_first(self, heads: DrawnTree, chain: DrawnTree) -> list[DrawnTree]:
        """Put the draft first whose own path is expected to have more accepted tokens: a replica
        that verifies chains only is sent just that path. In rejection mode the heads always come
        first."""
        if heads.distributions or chain.distributions:
            return [heads, chain]
        of_heads = expected_tokens(self._heads_acceptance.alpha, len(self._first_choices))
        of_chain = expected_tokens(self._ahead.acceptance.alpha, len(chain.tree))
        return [chain, heads] if of_chain > of_heads else [heads, chain]

    def _depth_on(self) -> int:
        """Return the depth of the chain's next draft; 0 if one is under way or the chain is long
        enough."""
        ahead = self._ahead
        if ahead.task is not None or self._alone or not self._capacity.drafters:
            return 0
        room = self._room - len(ahead.path)
        return max(0, min(self._next_depth(), room)) if room > 0 else 0

    def _draft_on(self, depth: int) -> Draft:
        self._ahead.task = self._new_task()
        levels = levels_per_message(self._capacity, self._lookahead or DEFAULT_LOOKAHEAD)
        return Draft(self._ahead.task, self._ahead.path, depth, levels)

    def _next_depth(self) -> int:
        """Return how many tokens to draft after the chain's last; where drafting is not expected to
        pay, occasionally one."""
        ahead, cost, trial = self._ahead, self._capacity.draft_cost, self._capacity.trial_cost
        if self._lookahead is not None:  # a verification may commit lookahead + 1 tokens
            return 2 * self._lookahead + 1 - len(ahead.path)
        least = max(self._token_cost, IN_VAIN)
        if cost is not None and (cost >= 1 or ahead.acceptance.alpha <= least or not self._pays):
            return int(trial is not None and ahead.acceptance.exploration.tries(trial))
        return int(min(MAX_AHEAD, ahead.acceptance.num_worth(least))) - len(ahead.path)

    @property
    def _pays(self) -> bool:
        """True if the chain is expected to pay, or joins trees of the heads that do."""
        costs, plan = self._capacity.drafter_costs, self._next_plan
        if (plan is not None and not plan.trial) or costs is None or not costs.alone_s:
            return True
        return pays_ahead(costs, self._ahead.acceptance.alpha, self._num_worth)

    @property
    def _num_worth(self) -> int:
        """Number of the chain's tokens that are worth their time in a verification."""
        if self._lookahead is not None:
            return self._lookahead
        num_worth = self._ahead.acceptance.num_worth(self._token_cost)
        return int(min(MAX_AHEAD, self._capacity.most_tokens, num_worth))

    @property
    def _token_cost(self) -> float:
        """The cost of verifying a token; as in ``AdaptiveTree``, 0 if a width is to be filled."""
        return 0.0 if self._width is not None else self._capacity.token_cost

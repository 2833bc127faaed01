"""The chains of all drafters of one answer, each drafted without pause until it is far ahead."""

from __future__ import annotations

from collections.abc import Iterator

from specmesh.decoding.predict.acceptance_rate import DRAFTER, MeshAcceptance
from specmesh.orchestrator.strategies.chains.chain import Chain
from specmesh.orchestrator.strategies.chains.reach import Reach
from specmesh.orchestrator.strategies.commands import Cancel, Draft, TaskId
from specmesh.orchestrator.strategies.events import Capacity, Drafted, DrafterName
from specmesh.orchestrator.strategies.kit.pace import levels_per_message
from specmesh.orchestrator.strategies.kit.progress import Progress

MAX_DRAFT_TOKENS = 256
"""Limit of one draft; a longer chain takes several."""


class DrafterChains:
    """The chains, the preferred drafter's first. ``task_ids`` numbers the drafts, ``reach`` limits
    them, and ``acceptance`` is how often those of all answers are right."""

    def __init__(
        self,
        progress: Progress,
        reach: Reach,
        task_ids: Iterator[TaskId],
        acceptance: MeshAcceptance,
    ) -> None:
        self._acceptance = acceptance
        self._progress = progress
        self._reach = reach
        self._task_ids = task_ids
        self._chains: list[Chain] = []

    def __iter__(self) -> Iterator[Chain]:
        return iter(self._chains)

    def has_drafter(self, chain: Chain) -> bool:
        """Return whether the chain's drafter is still there to extend it."""
        return chain.drafter in self._reach.capacity.drafters

    def adapt(self, capacity: Capacity) -> list[Cancel]:
        """Give each drafter a chain. The chain of a drafter that has gone is not extended, since
        two drafters would then draft the same, but its tokens are verified."""
        former = {chain.drafter: chain for chain in self._chains}
        self._chains = [
            former.pop(drafter) if drafter in former else self._new_chain(drafter)
            for drafter in capacity.drafters
        ]
        left = list(former.values())
        self._chains += [chain for chain in left if chain.tokens]
        cancelled = [chain.task for chain in left if chain.task is not None]
        for chain in left:
            chain.task = None
        return [Cancel(task) for task in cancelled]

    def _new_chain(self, drafter: DrafterName) -> Chain:
        preferred = drafter == self._reach.capacity.drafters[0]
        acceptance = self._acceptance.rate(DRAFTER if preferred else drafter)
        return Chain(drafter, start=self._position, acceptance=acceptance)

    def extend(self, event: Drafted) -> None:
        """Add the drafted tokens to their chain. A draft without any ends the drafting until the
        next commit."""
        for chain in self._chains:
            if chain.task == event.task:
                chain.extend(event)
                if event.last:
                    chain.task = None
                    chain.silent |= chain.end == chain.task_start

    def is_worth_drafting(self, chain: Chain) -> bool:
        """Return whether the chain is being drafted, or can be and it pays."""
        if chain.task is not None:
            return True
        return self._can_draft(chain) and self._reach.is_worth_drafting(chain)

    def failed(self, task: TaskId) -> None:
        """End the drafting of the chain whose draft was ``task`` until the next commit."""
        for chain in self._chains:
            if chain.task == task:
                chain.task, chain.silent = None, True

    def drop_finished(self) -> None:
        """Let all chains be drafted again, and drop those without tokens and drafter."""
        for chain in self._chains:
            chain.silent = False
        self._chains = [each for each in self._chains if each.tokens or self.has_drafter(each)]

    def pause(self) -> list[Cancel]:
        """Stop the drafts of chains that are too far ahead."""
        commands: list[Cancel] = []
        for chain in self._chains:
            ahead, reach = chain.end - self._position, self._reach.beyond_committed(chain)
            chain.far_ahead = ahead > (reach / 2 if chain.far_ahead else reach)
            if chain.far_ahead and chain.task is not None:
                commands.append(Cancel(chain.task))
                chain.task = None
        return commands

    def draft_on(self, num_choices: int) -> list[Draft]:
        """Draft all chains on that can be and for which it pays."""
        return [
            self._draft(chain, depth, num_choices)
            for chain in self._chains
            if self._can_draft(chain) and (depth := self._depth(chain))
        ]

    @property
    def _position(self) -> int:
        return len(self._progress.token_ids)

    def _can_draft(self, chain: Chain) -> bool:
        ready = chain.task is None and not (chain.silent or chain.far_ahead)
        return ready and self.has_drafter(chain) and chain.end < self._progress.draftable

    def _depth(self, chain: Chain) -> int:
        """Return the length of the next draft; 0 lets the target work alone for now."""
        if self._reach.is_worth_drafting(chain):
            return min(self._progress.draftable - chain.end, MAX_DRAFT_TOKENS)
        chain.silent = True
        return int(self._reach.explores(chain))

    def _draft(self, chain: Chain, depth: int, num_choices: int) -> Draft:
        reach, capacity = self._reach, self._reach.capacity
        most = min(reach.lookahead(chain), 1 + int(min(reach.beyond_committed(chain), depth)))
        chain.task, chain.task_start = next(self._task_ids), chain.end
        return Draft(
            chain.task,
            chain.between(self._position, chain.end),
            depth=depth,
            levels_per_message=levels_per_message(capacity, most),
            num_choices=num_choices,
            drafter=capacity.drafters.index(chain.drafter),
        )

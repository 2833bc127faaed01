"""Distributed speculative inference: drafting never waits, several replicas verify at once.

Timor et al. 2025 (DSI), Algorithm 1, with the lookahead of Appendix D. What the paper calls
threads are the tasks here:

- each of the m - 1 drafters drafts a chain of its own (``Chain``) for as long as it is right;
- the target starts on every known prefix at once (lines 2 and 6: C_(J,m)), with nothing to
  check yet, so that the answer is never slower than the target alone (Theorem 1);
- whenever ``lookahead`` more tokens of a chain are drafted and a replica is free, one more
  verification of them leaves (``InFlightVerification``). When none is free the verification
  grows instead of waiting, so speculation parallelism stays within the live replicas whatever
  the lookahead;
- it leaves before that if the chain is not drafted on, and, unless a lookahead was asked for,
  once more likely than not it holds a token that will be rejected: the sooner that is known,
  the less is drafted in vain. Not in rejection mode, where what leaves must not depend on the
  tokens drawn;
- the verification that covers the next position of the answer is the current verifier. What it says
  is committed; chains and checks that assumed something else are terminated with all that
  hangs from them (lines 8 and 10), and the next current verifier is the one that covers the
  position now next (line 11), which may have spoken already (lines 13 and 14);
- in rejection mode what a chain has at the bonus token's place by then is tried there (see
  ``decoding/bonus.py``): a bonus token drawn without regard to it would end nearly every chain;
- of several drafters that are right the first is preferred (line 9): replicas go to its chain
  first. Algorithm 1 also lets every drafter go on from every other's tokens; that grows
  exponentially, and a drafter is one process, so here each goes on from its own.

A chain is drafted no further than verifications can use (``_reach``), and unless a lookahead was
asked for not at all where a token more in a verification costs more than it brings: then the
target works alone, but for what ``Exploration`` allows.
"""

from __future__ import annotations

from collections.abc import Sequence

from specmesh.decoding.closed_forms import min_lookahead
from specmesh.decoding.tree import TokenTree
from specmesh.orchestrator.strategies.base import (
    Cancel,
    Capacity,
    Command,
    Draft,
    Drafted,
    Event,
    Failed,
    GiveUp,
    Goal,
    Strategy,
    TaskId,
    Verified,
    Verify,
)
from specmesh.orchestrator.strategies.kit.chains import Chain, InFlightVerification
from specmesh.orchestrator.strategies.kit.pace import levels_per_message
from specmesh.orchestrator.strategies.kit.progress import Progress

DEFAULT_LOOKAHEAD = 4
"""As long as no latency was measured."""
MAX_DRAFT_TOKENS = 256
"""Of one draft call; a chain that outlives it is drafted on by another."""
MAX_CHECK_TOKENS = 256
"""Of one verification, however far a quick drafter has run ahead."""
IN_VAIN = 0.03
"""The chance to stand below which tokens are not drafted: other requests want the drafter, and
an answer that has it for itself loses 2 % of its time at most. With eight requests at once on
two replicas whose forward takes 13 of the drafter's (`specmesh simulate run`, acceptance 0.8),
they end in two thirds of the time that they would take without a bound."""
UNSURE = 0.5
"""The chance to stand below which tokens are verified at once."""


class DSI(Strategy):
    """See ``Strategy``."""

    def __init__(self, goal: Goal) -> None:
        self._goal = goal
        self._progress = Progress(goal)
        self._text = self._progress.token_ids
        self._capacity = Capacity()
        self._chains: list[Chain] = []
        self._checks: dict[TaskId, InFlightVerification] = {}
        self._last_task: TaskId = 0

    def start(self, capacity: Capacity) -> Sequence[Command]:
        """See ``Strategy.start``."""
        self._adapt(capacity)
        return self._go_on()

    def handle(self, event: Event) -> Sequence[Command]:
        """See ``Strategy.handle``."""
        match event:
            case Drafted():
                self._extend(event)
            case Verified(task=task, verdict=verdict) if check := self._checks.get(task):
                check.verdict = verdict
                return self._commit_what_is_known()
            case Failed(task=task) if check := self._checks.pop(task, None):
                # Sent again it would fail again; but another may tell the same.
                if check.start <= len(self._text) and self._current_verifier() is None:
                    return [GiveUp(task)]
            case Failed(task=task):
                for chain in self._chains:
                    if chain.task == task:
                        chain.task, chain.silent = None, True
            case Capacity():
                self._adapt(event)
            case _:
                return []
        return self._go_on()

    def _adapt(self, capacity: Capacity) -> None:
        self._capacity = capacity
        for drafter in range(len(self._chains), capacity.num_drafters):
            self._chains.append(Chain(drafter, start=len(self._text)))

    @property
    def _lookahead(self) -> int:
        """As asked for, or the smallest with which no verification waits."""
        return self._goal.lookahead or self._least_lookahead

    @property
    def _least_lookahead(self) -> int:
        """Equation 1, once latencies are known."""
        target_s, drafter_s = self._capacity.target_s, self._capacity.drafter_s
        if target_s is None or drafter_s is None:
            return DEFAULT_LOOKAHEAD
        return min_lookahead(target_s, drafter_s, self._parallelism)

    @property
    def _parallelism(self) -> int:
        return max(1, self._capacity.num_verifiers)

    # What happened

    def _extend(self, event: Drafted) -> None:
        for chain in self._chains:
            if chain.task == event.task:
                chain.extend(event)
                if event.last:
                    chain.task = None
                    chain.silent |= chain.end == chain.task_start

    def _commit_what_is_known(self) -> list[Command]:
        commands: list[Command] = []
        while task := self._current_verifier(has_spoken=True):
            check = self._checks.pop(task)
            known = len(self._text) - check.start
            said = (*check.accepted(), self._next_token(check))
            # In rejection mode two verifications may differ in a token that both tell: the
            # first to speak decides, and what the other says hangs from a token not there.
            if list(said[:known]) == self._text[check.start :]:
                commands += self._commit(said[known:])
                if self._progress.ended:
                    return commands
        return commands + self._go_on()

    def _next_token(self, check: InFlightVerification) -> int:
        """The target's own, after what it accepted; a bonus token meets the chains' drafts."""
        verdict, position = check.verdict, len(self._text)
        assert verdict is not None
        if verdict.bonus is None or check.end < position:
            return verdict.next_token
        run = check.assumed(position)
        drafts = (
            chain.drawn_at(check.end)
            for chain in self._chains
            if chain.between(position, check.end) == run
        )
        return verdict.bonus.meet([drawn for drawn in drafts if drawn is not None])

    def _commit(self, tokens: tuple[int, ...]) -> list[Command]:
        if not tokens:
            return []
        position = len(self._text)
        drafted = max((chain.learn(position, tokens) for chain in self._chains), default=0)
        commands = self._progress.commit(tokens, drafted)
        if self._progress.ended:
            return commands
        return commands + self._terminate(position)

    def _terminate(self, position: int) -> list[Command]:
        """End whatever assumed other tokens than those committed from ``position`` on.

        Drafts first: their drafters are waited for, while there may be replicas to spare.
        """
        commands: list[Command] = []
        new = tuple(self._text[position:])
        for chain in self._chains:
            chain.silent = False
            if chain.between(position, len(self._text)) != new:
                if chain.task is not None:
                    commands.append(Cancel(chain.task))
                chain.start_over(len(self._text))
        for task, check in list(self._checks.items()):
            assumed = check.assumed(position)
            if assumed[: len(new)] != new[: len(assumed)] or check.end < len(self._text):
                del self._checks[task]
                if check.verdict is None:
                    commands.append(Cancel(task))
        return commands

    # What to do next

    def _go_on(self) -> list[Command]:
        commands: list[Command] = []
        if self._current_verifier() is None:
            commands.append(self._verify(self._preferred_chain(), len(self._text)))
        # First of all, since what a draft brings has to be verified in turn.
        commands[:0] = [*self._pause(), *self._draft_on()]
        for chain in self._chains:
            while self._num_running < self._capacity.num_verifiers:
                start = self._verified_up_to(chain)
                if not self._may_leave(chain, start):
                    break
                commands.append(self._verify(chain, start))
        return commands

    def _current_verifier(self, has_spoken: bool = False) -> TaskId | None:
        """The task of a check that tells the next token of the answer, unless it was wrong."""
        for task, check in self._checks.items():
            if check.start <= len(self._text) and (check.verdict or not has_spoken):
                return task
        return None

    def _may_leave(self, chain: Chain, start: int) -> bool:
        """Whether to verify the chain's tokens from ``start`` on now."""
        # A chain that isn't drafted on has nothing to wait for.
        complete = chain.far_ahead or chain.end == self._progress.draftable
        num_tokens = chain.end - start
        some = num_tokens > 0 and (complete or self._is_unsure(chain, start))
        return some or num_tokens >= self._lookahead

    @property
    def _may_leave_early(self) -> bool:
        """With a single replica the next verification is always waited for."""
        return self._goal.lookahead is None and self._capacity.num_verifiers > 1

    def _is_unsure(self, chain: Chain, start: int) -> bool:
        return self._may_leave_early and not chain.distributions and chain.chance(start) < UNSURE

    @property
    def _num_running(self) -> int:
        return sum(1 for check in self._checks.values() if check.verdict is None)

    def _preferred_chain(self) -> Chain:
        """The first that is ahead of the answer; an empty one if none is."""
        ahead = (chain for chain in self._chains if chain.end > len(self._text))
        return next(ahead, Chain(0, len(self._text)))

    def _verified_up_to(self, chain: Chain) -> int:
        """How far the chain's tokens are being verified already, for whichever chain.

        In rejection mode for this chain alone: a verification that leaves only because two
        drafters drew differently would, once it is the first to speak, have chosen between
        two verdicts by the noise they hang from (see ``verify``).
        """
        position = len(self._text)
        shared = not chain.distributions
        ends = [
            check.end
            for check in self._checks.values()
            if (shared or check.drafter == chain.drafter)
            and check.assumed(position) == chain.between(position, check.end)
        ]
        return max(ends, default=position)

    def _verify(self, chain: Chain, start: int) -> Verify:
        position, end = len(self._text), min(chain.end, start + MAX_CHECK_TOKENS)
        self._last_task += 1
        tokens = chain.between(position, end)
        self._checks[self._last_task] = InFlightVerification(chain.drafter, position, start, tokens)
        drawn_from = chain.distributions
        return Verify(
            self._last_task,
            chain.between(position, start),
            TokenTree.chain(chain.between(start, end)),
            {at - start: drawn_from[at] for at in range(start, end) if at in drawn_from},
            drafting_on=True,
        )

    # How far to draft

    def _reach(self, chain: Chain) -> float:
        """How many tokens beyond what is committed a chain may have.

        By Equation 1 the replicas hold SP * lookahead tokens while a verification lasts, and
        as many again are drafted meanwhile. Whatever is beyond waits for others, as a backlog
        at the replicas makes it, and keeps the drafter from other requests. Nor is a token of
        use that costs the replicas more time than it is likely to save.
        """
        in_use = 2 * self._parallelism * max(self._lookahead, self._least_lookahead)
        if self._goal.lookahead is not None:
            return in_use
        return min(in_use, chain.acceptance.num_worth(self._least_chance))

    @property
    def _least_chance(self) -> float:
        """To stand, of a token that is to be drafted."""
        return max(self._capacity.token_cost, IN_VAIN)

    def _depth(self, chain: Chain) -> int:
        """Of the next draft; 0 where the target works alone: where a draft token couldn't be
        there before the target's own, or isn't worth verifying."""
        cost = self._capacity.draft_cost
        asked_for = self._goal.lookahead is not None
        if asked_for or cost is None or (cost < 1 and chain.acceptance.alpha > self._least_chance):
            chain.exploring = False
            return min(self._progress.draftable - chain.end, MAX_DRAFT_TOKENS)
        chain.silent = True
        chain.exploring = chain.exploration.tries(cost)
        return int(chain.exploring)

    def _pause(self) -> list[Command]:
        """Stop the drafts of chains that are too far ahead."""
        commands: list[Command] = []
        for chain in self._chains:
            ahead, reach = chain.end - len(self._text), self._reach(chain)
            chain.far_ahead = ahead > (reach / 2 if chain.far_ahead else reach)
            if chain.far_ahead and chain.task is not None:
                commands.append(Cancel(chain.task))
                chain.task = None
        return commands

    def _draft_on(self) -> list[Command]:
        return [
            self._draft(chain, depth)
            for chain in self._chains
            if self._can_draft(chain) and (depth := self._depth(chain))
        ]

    def _can_draft(self, chain: Chain) -> bool:
        ready = chain.task is None and not (chain.silent or chain.far_ahead)
        return ready and chain.end < self._progress.draftable

    def _draft(self, chain: Chain, depth: int) -> Draft:
        self._last_task += 1
        chain.task, chain.task_start = self._last_task, chain.end
        return Draft(
            chain.task,
            chain.between(len(self._text), chain.end),
            depth=depth,
            levels_per_message=levels_per_message(self._capacity, self._lookahead),
            num_choices=1 if self._may_leave_early else 0,
            drafter=chain.drafter,
        )

"""Distributed speculative inference: drafting never waits, and several replicas verify in parallel.

Timor et al. 2025 (DSI), Algorithm 1, with the lookahead of Appendix D. The paper's threads are
tasks here:

- each of the m - 1 drafters drafts a chain of its own (``Chain``), without pause, until one of its
  tokens is rejected;
- the target starts on every known prefix immediately (lines 2 and 6: C_(J,m)), with no draft token
  to verify yet, so that the answer is never slower than the target alone (Theorem 1). Only a single
  replica waits for a draft where that is clearly faster: it would have no time for another
  verification meanwhile;
- whenever ``lookahead`` more tokens of a chain are drafted and a replica is free, a verification of
  them is sent (``InFlightVerification``). If no replica is free, the tokens join the next
  verification, so there are never more verifications than live replicas;
- where no draft pays, the target decodes on by itself until one does. A draft that is made to see
  whether drafts pay again is verified by a free replica, or ends the decoding on if there is none;
- it is sent earlier if the chain is not being extended. Unless the request sets a lookahead, it is
  also sent earlier once the chain more likely than not has a token that will be rejected, because
  the sooner that is known, the less is drafted in vain. This does not apply in rejection mode,
  where the drawn tokens must not decide when a verification is sent;
- the current verifier is the verification that covers the answer's next position. Its tokens are
  committed; chains and verifications that assumed other tokens are terminated (lines 8 and 10), and
  the verification of the new next position becomes the current verifier (line 11); its verdict may
  have arrived already (lines 13 and 14);
- if the target has heads (``heads.py``), a verdict also brings a short chain that follows it. The
  verification that starts over after a rejection then has something to verify. Without heads it
  yields one token, because no drafter can have drafted after a token that was not known before. The
  drafters still draft from the recovered token: their guesses are mostly better, and would be lost
  with a wrong one of the heads. The heads' chain is verified only if no drafter's chain predicts
  the next token;
- with a ``width`` a verification also covers second choices where the drafter is unsure. If the
  target confirms one of them, its next token is known too, and a rejection does not cost a
  verification of a single token. This does not apply in rejection mode, where the drafter draws one
  token per position;
- in rejection mode the bonus token tries the tokens that chains have already drafted at its
  position (see ``decoding/bonus.py``): drawn regardless of them, it would end nearly every chain;
- among several drafters that are right the first is preferred (line 9): replicas verify its chain
  first. Algorithm 1 also lets every drafter continue every other's tokens; that grows
  exponentially, and a drafter is one process, so here each drafter continues its own.

In rejection mode heads draft with noise of their own for each verification, and always as deep as
requested: a chain that ended where the heads are unsure would arrive earlier for that reason, and
of several verdicts on a position the first counts.

``Reach`` decides how far a chain is drafted and how many tokens a verification covers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from specmesh.decoding.predict.acceptance_rate import HEADS_CHAIN
from specmesh.decoding.trees.plan import MAX_WIDTH
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.orchestrator.strategies.base import Goal, Strategy
from specmesh.orchestrator.strategies.branches import with_second_choices
from specmesh.orchestrator.strategies.chains.chain import HEADS, Chain
from specmesh.orchestrator.strategies.chains.drafting import DrafterChains
from specmesh.orchestrator.strategies.chains.reach import Reach
from specmesh.orchestrator.strategies.chains.verifications import (
    InFlightVerification,
    Verifications,
)
from specmesh.orchestrator.strategies.commands import (
    Cancel,
    Command,
    GiveUp,
    NextDraft,
    TaskId,
    Verify,
)
from specmesh.orchestrator.strategies.events import Capacity, Drafted, Event, Failed, Verified
from specmesh.orchestrator.strategies.kit.draft_chain import DraftChain
from specmesh.orchestrator.strategies.kit.further import num_further
from specmesh.orchestrator.strategies.kit.progress import Progress

MAX_CHECK_TOKENS = 256
"""Limit of one verification, however far a fast drafter has run ahead."""
NUM_CHOICES = 4
"""Number of tokens that the drafter reports per position if second choices are verified."""
UNSURE = 0.5
"""Tokens that are accepted with a lower probability than this are verified immediately."""


class DSI(Strategy):
    """Keeps every chain and every verification in agreement with the answer so far: all others are
    terminated when tokens are committed. There is always a current verifier, or a draft that it
    waits for.
    """

    options = frozenset({"lookahead", "width"})

    def __init__(self, goal: Goal) -> None:
        self._goal = goal
        self._progress = Progress(goal)
        self._text = self._progress.token_ids
        self._reach = Reach(goal.lookahead)
        self._task_ids = count(1)
        self._chains = DrafterChains(self._progress, self._reach, self._task_ids, goal.acceptance)
        self._heads = Chain(HEADS, acceptance=goal.acceptance.rate(HEADS_CHAIN))
        """The chain that came with a verdict; it is not extended."""
        self._checks = Verifications()

    def start(self, capacity: Capacity) -> Sequence[Command]:
        """Verify the first position and begin every chain."""
        return [*self._adapt(capacity), *self._go_on()]

    def handle(self, event: Event) -> Sequence[Command]:
        """Commit what is known, draft on, and verify what is drafted."""
        match event:
            case Drafted():
                self._chains.extend(event)
            case Verified(task=task) if check := self._checks.get(task):
                check.answer = event
                return self._commit_what_is_known()
            case Failed(task=task) if check := self._checks.pop(task):
                # Resent, it would fail again; but another may cover the same position.
                if check.start <= len(self._text) and self._checks.current(len(self._text)) is None:
                    return [GiveUp(task)]
            case Failed(task=task):
                self._chains.failed(task)
            case Capacity():
                return [*self._adapt(event), *self._go_on()]
            case _:
                return []
        return self._go_on()

    def _adapt(self, capacity: Capacity) -> Sequence[Command]:
        self._reach.capacity = capacity
        return self._chains.adapt(capacity)

    # What happened

    def _commit_what_is_known(self) -> list[Command]:
        commands: list[Command] = []
        while found := self._checks.pop_verdict(len(self._text)):
            task, check, answer = found
            known = len(self._text) - check.start
            tokens = (*check.accepted(), self._next_token(check, answer))
            # In rejection mode two verifications may give different tokens for one position: the
            # first to end decides, and the tokens after the other's are useless.
            if list(tokens[:known]) == self._text[check.start :]:
                commands += self._commit(tokens[known:], check, answer)
                if self._progress.ended:
                    return commands
            if answer.more:
                commands += self._decode_on(task, check, tokens)
        return commands + self._go_on()

    def _decode_on(
        self, task: TaskId, check: InFlightVerification, tokens: tuple[int, ...]
    ) -> list[Command]:
        """Let the target, which has given ``tokens``, go on to the answer's next one, unless the
        answer has overtaken it or has another token."""
        position = len(self._text)
        if check.start + len(tokens) < position or self._text[-1] != tokens[-1]:
            return [Cancel(task)]
        self._checks[task] = InFlightVerification(
            *(check.drafter, position, position, (), EMPTY), decodes_on=True
        )
        return []

    def _next_token(self, check: InFlightVerification, answer: Verified) -> int:
        """Return the token after the accepted ones; a bonus token first tries the chains'."""
        verdict, position = answer.verdict, len(self._text)
        if verdict.bonus is None or check.end < position:
            return verdict.next_token
        assumed = check.assumed(position)
        drafts = (
            chain.drawn_at(check.end)
            for chain in self._chains
            if chain.between(position, check.end) == assumed
        )
        return verdict.bonus.meet([drawn for drawn in drafts if drawn is not None])

    def _commit(
        self, tokens: tuple[int, ...], check: InFlightVerification, answer: Verified
    ) -> list[Command]:
        """Commit ``tokens``, the answer's next, which the ``answer`` to ``check`` has provided."""
        if not tokens:
            return []
        position = len(self._text)
        # The last token also decides about draft tokens that other verifications check there.
        recovered = any(each.asks_after(position, tokens[:-1]) for each in (check, *self._checks))
        known = [chain.learn(position, tokens) for chain in (*self._chains, self._heads)]
        drafted = max(*known, len(tokens) - 1)
        commands = self._progress.commit(tokens, drafted, recovered=recovered)
        if self._progress.ended:
            return commands
        commands += self._terminate(position)
        self._take_in_heads(answer)
        return commands

    def _take_in_heads(self, answer: Verified) -> None:
        """Take over the draft of the heads if it still applies: it follows the target's own token,
        which a draft token may have replaced (see ``_next_token``)."""
        if answer.next_draft is not None and self._text[-1] == answer.verdict.next_token:
            self._heads.start_over(len(self._text))
            self._heads.extend(answer.next_draft)

    def _terminate(self, position: int) -> list[Command]:
        """End what assumed other tokens than those committed from ``position`` on.

        Drafts come first: drafters are needed immediately, while a replica may be idle anyway.
        """
        commands: list[Command] = []
        new = tuple(self._text[position:])
        for chain in (*self._chains, self._heads):
            if chain.between(position, len(self._text)) == new:
                chain.drop_committed(len(self._text))
                continue
            if chain.task is not None:
                commands.append(Cancel(chain.task))
            chain.start_over(len(self._text))
        self._chains.drop_finished()
        return commands + self._checks.terminate(self._text)

    # What to do next

    def _go_on(self) -> list[Command]:
        cancelled, commands = self._cut_off(), list[Command]()
        missing = self._checks.current(len(self._text)) is None
        least = self._least_tokens() if missing else 0
        if missing and not least:
            commands.append(self._verify(self._preferred_chain(), len(self._text)))
        # Drafts come first, because their tokens have to be verified in turn.
        cancelled += self._chains.pause()
        commands[:0] = [*cancelled, *self._chains.draft_on(self._num_choices)]
        if missing and least and not self._is_drafting(least):
            commands.append(self._verify(self._preferred_chain(), len(self._text)))
        for chain in self._chains:
            while self._checks.num_running < self._reach.capacity.num_verifiers:
                start = self._checks.verified_up_to(chain, len(self._text))
                if not self._may_leave(chain, start):
                    break
                commands.append(self._verify(chain, start))
        return commands

    def _cut_off(self) -> list[Cancel]:
        """End the target's decoding on where no other replica verifies what is drafted."""
        position, chain = len(self._text), self._preferred_chain()
        if not self._checks.decodes_on or chain.end <= position:
            return []
        is_full = self._checks.num_running >= self._reach.capacity.num_verifiers
        if not is_full or self._checks.verified_up_to(chain, position) > position:
            return []
        least = self._least_tokens()
        return [] if least and self._is_drafting(least) else self._checks.cut_off()

    def _least_tokens(self) -> int:
        """Return the number of draft tokens that the current verifier waits for."""
        chain = next(iter(self._chains), None)
        if chain is None:
            return 0
        return self._reach.least_tokens(chain, self._heads, len(self._text))

    def _is_drafting(self, least: int) -> bool:
        """Return whether the first chain is being drafted and lacks some of ``least`` tokens."""
        chain = next(iter(self._chains))
        return chain.task is not None and chain.end - len(self._text) < least

    def _may_leave(self, chain: Chain, start: int) -> bool:
        """Return whether to verify the chain's tokens from ``start`` on now."""
        # A chain that is not being extended has nothing to wait for.
        complete = chain.far_ahead or not self._chains.has_drafter(chain)
        complete = complete or chain.end == self._progress.draftable
        num_tokens = chain.end - start
        some = num_tokens > 0 and (complete or self._is_unsure(chain, start))
        return some or num_tokens >= self._reach.lookahead(chain)

    @property
    def _may_leave_early(self) -> bool:
        """True if early verifications help: with a single replica the next is always waited for."""
        return self._goal.lookahead is None and self._reach.capacity.num_verifiers > 1

    def _is_unsure(self, chain: Chain, start: int) -> bool:
        return self._may_leave_early and not chain.distributions and chain.chance(start) < UNSURE

    def _preferred_chain(self) -> Chain:
        """Return the first chain ahead of the answer, or that of the heads, which may be empty."""
        ahead = (chain for chain in self._chains if chain.end > len(self._text))
        return next(ahead, self._heads)

    def _verify(self, chain: Chain, start: int) -> Verify:
        position = len(self._text)
        end = min(chain.end, start + MAX_CHECK_TOKENS, self._progress.draftable)
        task = next(self._task_ids)
        drafted = chain.part(start, end)
        tree = self._tree(chain, drafted, room=self._progress.draftable - start)
        next_draft = self._next_draft(start)
        further = 0 if next_draft or tree.token_ids else self._num_further()
        self._checks[task] = InFlightVerification(
            *(chain.drafter, position, start, chain.between(position, end), tree),
            decodes_on=further > 0,
        )
        return Verify(
            *(task, chain.between(position, start), tree, drafted.drawn_from),
            drafting_on=not further,
            next_draft=next_draft,
            num_further=further,
            num_second_choices=len(tree) - len(drafted.tokens),
        )

    def _num_further(self) -> int:
        """Return how many tokens the target may give after the next: none while there is or should
        be a draft."""
        if any(chain.tokens or self._chains.is_worth_drafting(chain) for chain in self._chains):
            return 0
        return num_further(self._reach.capacity, self._progress.remaining)

    def _tree(self, chain: Chain, drafted: DraftChain, room: int) -> TokenTree:
        """Return the tree of a part of ``chain`` with the second choices that are worth it, or as
        many as the width has room for."""
        outcomes, width = chain.outcomes(drafted), self._goal.width
        if width is None:
            outcomes = [
                each for each in outcomes if self._reach.second_choice_pays(each.probability)
            ]
            width = MAX_WIDTH
        return with_second_choices(drafted, outcomes, min(width, room))

    def _next_draft(self, start: int) -> NextDraft | None:
        """Return the request for the heads to draft after a verdict on ``start`` or later."""
        room = self._progress.draftable - start - 1
        if room < 1:
            return None
        depth = min(room, self._reach.heads_depth(self._heads, next(iter(self._chains), None)))
        return NextDraft(depth, num_choices=self._num_choices) if depth else None

    @property
    def _num_choices(self) -> int:
        """Number of likeliest tokens that drafters report for each position."""
        return NUM_CHOICES if self._goal.lookahead is None or self._goal.width else 0

"""Streams one answer: the driver works ahead of the client, and tokens go to the store before they
go to the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import closing
from dataclasses import replace

from specmesh.decoding.errors import InvalidField
from specmesh.orchestrator.admission.slot import Slot
from specmesh.orchestrator.answers import events
from specmesh.orchestrator.answers.emission import AnswerEnd, Emission, EmittedToken
from specmesh.orchestrator.answers.message_deltas import MessageDeltas
from specmesh.orchestrator.answers.request_metrics import RequestMetrics
from specmesh.orchestrator.answers.session_log import SessionLog
from specmesh.orchestrator.answers.undrafted import why_undrafted
from specmesh.orchestrator.driver.mesh_driver import Driver
from specmesh.orchestrator.replicas.calls.judged_logprobs import JudgedLogprobs
from specmesh.orchestrator.replicas.calls.mesh_calls import Calls
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.calls.traced_tokens import TracedTokens
from specmesh.orchestrator.replicas.need import Need
from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix
from specmesh.orchestrator.replicas.prefixes.shared_holders import Search
from specmesh.orchestrator.replicas.replica_pools import ReplicaPools
from specmesh.orchestrator.replicas.target import Target
from specmesh.orchestrator.replicas.transport.peer_model import kind_of
from specmesh.orchestrator.requests.answer_format import kept_tokens
from specmesh.orchestrator.requests.plan import RequestPlan
from specmesh.orchestrator.requests.prompts import digest_of
from specmesh.orchestrator.requests.sampling import num_without_stop
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.commands import Commit, Finish, StopReason, TokenKind
from specmesh.orchestrator.strategies.kit.progress import Progress
from specmesh.orchestrator.text.decoder import TextStream
from specmesh.serving.store.stored_session import Claim, Generated
from specmesh.v1.events_pb2 import GenerationEvent, GenerationStats

HEARTBEAT_S = 0.5
"""Longest silence of a stream, after which a heartbeat is sent."""
REPLAYED_AT_ONCE = 256
"""The number of tokens that take a few milliseconds to replay."""


class Answer:
    """Streams one answer: each token once, in order, and not before it was given to the store.

    ``replayed`` are generated tokens that are committed already; the client has ``num_received`` of
    them and is not sent those again.
    """

    def __init__(
        self,
        plan: RequestPlan,
        target: Target,
        session: SessionLog,
        metrics: RequestMetrics,
        replayed: Generated,
        num_received: int,
    ) -> None:
        self._plan = plan
        self._target = target
        self._session = session
        self._metrics = metrics
        self._replayed = replayed
        self._num_received = num_received
        kept = kept_tokens(
            *(target.token_bytes, plan.style, plan.goal.end_of_text_ids | plan.goal.stop_token_ids),
            keep_all=plan.keep_special_tokens,
        )
        text = TextStream(
            *(target.token_bytes, plan.prompt, plan.stopping.stop_strings, kept),
            num_without_stop(plan.sampling, len(plan.prompt)),
            include_stop=plan.stopping.include_stop_string,
        )
        num_known = len(plan.prompt) + len(replayed.token_ids)
        self._logprobs = (
            JudgedLogprobs(plan.num_top_logprobs, position=num_known)
            if plan.num_top_logprobs is not None
            else None
        )
        parser = None
        if plan.style.is_parsed:
            parser = plan.style.parser(target.token_bytes.end_of(plan.prompt))
        self._emission = Emission(text, self._logprobs, parser)
        self._deltas = MessageDeltas(plan.sampling.seed, digest_of(plan.prompt))
        self._chunk_interval_s = 0.0
        self._next_chunk_at = 0.0
        self._need = Need(kind_of(target.info), plan.features)
        self._calls: Calls | None = None

    async def begin(self, claim: Claim) -> bool:
        """Store the session under ``claim``; see ``SessionLog.begin``."""
        return await self._session.begin(claim)

    def go_on_under(self, claim: Claim) -> None:
        """Have ``claim``'s session if no other answer has it; see ``SessionLog.go_on_under``."""
        self._session.go_on_under(claim)

    async def require_replica(self, mesh: ReplicaPools) -> None:
        """Return once a replica can work on the answer, or immediately if there are tokens to
        replay. Raises ``Unavailable`` with reason NO_VERIFIER."""
        if not self._replayed.token_ids:
            await mesh.verifiers.require(self._need, self._metrics.deadline)

    async def events(
        self, mesh: ReplicaPools, slot: Slot, chunk_interval_s: float = 0.0
    ) -> AsyncGenerator[GenerationEvent, None]:
        """Yield the events of the answer; closing the generator cancels all work behind it.

        ``slot`` is left when the mesh has finished, even if events are still unread. After a chunk,
        tokens may wait for others for ``chunk_interval_s``.
        """
        self._chunk_interval_s = chunk_interval_s
        prefix = self._prefix(mesh)
        search = prefix.search([peer.identity for peer in mesh.verifiers.ready])
        async with self._session.open():
            # Before the first event: a client that reads nothing would hold the slot for nothing.
            work = asyncio.create_task(self._commit_all(mesh, slot, prefix, search))
            work.add_done_callback(lambda _: self._emission.wake())
            work.add_done_callback(lambda _: slot.leave())
            try:
                yield events.started(self._plan, self._target, self._session, HEARTBEAT_S)
                while (tokens := await self._next_tokens(work)) or not work.done():
                    if event := await self._event(tokens):
                        yield event
                end = self._emission.end(await work)
                await self._session.finish(end.reason)
                yield self._finished(end)
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    def _prefix(self, mesh: ReplicaPools) -> CommittedPrefix:
        committed = (*self._plan.prompt, *self._replayed.token_ids)
        session_id = self._session.session.session_id
        return CommittedPrefix(
            session_id, committed, mesh.holders, mesh.prefix_salt(self._plan.cache_salt)
        )

    async def _commit_all(
        self, mesh: ReplicaPools, slot: Slot, prefix: CommittedPrefix, search: Search | None
    ) -> StopReason:
        with closing(prefix):
            await prefix.learn(search)
            try:
                return await self._work(mesh, slot, prefix)
            except InvalidField as error:
                if self._plan.forced_calls is None:
                    raise
                raise self._plan.forced_calls.blamed(error) from error

    async def _work(self, mesh: ReplicaPools, slot: Slot, prefix: CommittedPrefix) -> StopReason:
        """Replay the tokens committed earlier, then run the strategy for the rest. ``prefix`` has
        all committed tokens."""
        progress = Progress(self._plan.goal)
        for index, token in enumerate(self._replayed.token_ids):
            *_, last = progress.commit((token,), num_accepted=0)
            checked = index not in self._replayed.unchecked
            if reason := self._emission.replay(token, checked=checked):
                return reason
            if isinstance(last, Finish):
                return last.reason
            if (index + 1) % REPLAYED_AT_ONCE == 0:
                await asyncio.sleep(0)  # for the streams of other answers
        goal = replace(
            self._plan.goal,
            max_tokens=progress.remaining,
            acceptance=mesh.acceptances[self._plan.strategy],
        )
        slot.limit(goal.max_tokens)
        strategy = STRATEGIES[self._plan.strategy](goal)
        text = self._target.token_bytes if mesh.records_content else None
        request = RequestContext(
            *(mesh, prefix, self._plan.sampling),
            vocab_size=self._target.info.vocab_size,
            deadline=self._metrics.deadline,
            need=self._need,
            epoch=self._session.epoch,
            filter_options=self._plan.filter_options,
            logprobs=self._logprobs,
            chunk_interval_s=self._chunk_interval_s,
            stops_early=bool(goal.stop_token_ids or self._plan.stopping.stop_strings),
            tokens=TracedTokens.if_recorded(prefix.length, text),
        )
        self._calls = calls = Calls(request)

        def deliver(commit: Commit) -> StopReason | None:
            slot.progressed(len(commit.token_ids))
            return self._emission.commit(commit)

        stats = self._metrics.stats
        try:
            reason = await Driver(strategy, calls, stats, deliver).drive()
        finally:
            self._metrics.cached(self._num_cached)
        capacity = replace(calls.capacity(), drafters=tuple(mesh.drafters.kinds))
        if "lookahead" not in strategy.options:  # that of the mesh, which this strategy passes over
            goal = replace(goal, lookahead=None)
        undrafted = why_undrafted(strategy.current, goal, capacity, stats)
        stats.explanation = "; but ".join(filter(None, (stats.explanation, undrafted)))
        return reason

    async def _next_tokens(self, work: asyncio.Task[StopReason]) -> list[EmittedToken]:
        """Return the tokens committed since the last call; none after ``HEARTBEAT_S`` or at the
        end."""
        if not work.done():
            await self._emission.wait(HEARTBEAT_S)
            await self._await_others(work)
        return self._emission.take()

    async def _await_others(self, work: asyncio.Task[StopReason]) -> None:
        """Let the tokens that are there wait for others, if they may."""
        left_s = self._next_chunk_at - asyncio.get_running_loop().time()
        if left_s > 0 and not work.done():
            await asyncio.wait({work}, timeout=left_s)

    async def _event(self, tokens: list[EmittedToken]) -> GenerationEvent | None:
        """Store ``tokens`` and return the event for the client; None if it has them already."""
        if not tokens:
            await self._session.touch()
            return events.heartbeat()
        new = [token for token in tokens if token.index >= len(self._replayed.token_ids)]
        await self._session.append(
            [token.token_id for token in new],
            [n for n, token in enumerate(new) if token.kind is TokenKind.UNCHECKED],
        )
        unsent = [token for token in tokens if token.index >= self._num_received]
        self._metrics.sent(len(new))
        if not unsent:
            return None
        self._next_chunk_at = asyncio.get_running_loop().time() + self._chunk_interval_s
        stats = self._stats(self._metrics.elapsed_ms)
        deltas = self._deltas.written(piece for token in unsent for piece in token.pieces)
        return events.chunk(unsent, deltas, stats, resumable=self._session.resumable)

    def _finished(self, end: AnswerEnd) -> GenerationEvent:
        stats = self._stats(self._metrics.succeeded(end.reason))
        deltas = self._deltas.written(end.pieces)
        return events.finished(end, deltas, stats, resumable=self._session.resumable)

    def _stats(self, duration_ms: float) -> GenerationStats:
        """Return the statistics up to the last token that was taken for the client."""
        stats = events.counts(self._metrics.stats)
        stats.num_prompt_tokens = len(self._plan.prompt)
        stats.num_cached_tokens = self._num_cached
        stats.num_output_tokens = self._emission.num_taken
        stats.num_unchecked_tokens = self._emission.num_unchecked
        stats.num_reasoning_tokens = self._emission.num_reasoning
        stats.duration_ms = duration_ms
        stats.time_to_first_token_ms = self._metrics.first_token_ms
        return stats

    @property
    def _num_cached(self) -> int:
        """Prompt tokens that were in a KV cache; 0 until that is known."""
        if self._calls is None:
            return 0
        return min(self._calls.num_cached_tokens, len(self._plan.prompt))

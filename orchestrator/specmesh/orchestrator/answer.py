"""Streams one answer: the driver works ahead of the client, and tokens go to the store before they
go to the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import closing
from dataclasses import dataclass, replace

from specmesh.orchestrator.driver import Driver
from specmesh.orchestrator.mailbox import Mailbox
from specmesh.orchestrator.mesh.calls import Calls, Mesh
from specmesh.orchestrator.mesh.peer import kind_of
from specmesh.orchestrator.mesh.prefix import CommittedPrefix
from specmesh.orchestrator.plan import RequestPlan
from specmesh.orchestrator.request_metrics import RequestMetrics
from specmesh.orchestrator.session_log import SessionLog
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Commit, Finish, StopReason
from specmesh.orchestrator.strategies.kit.progress import Progress
from specmesh.orchestrator.target import Target
from specmesh.orchestrator.text import TextStream
from specmesh.serving.session import Generated
from specmesh.v1 import generation_pb2

HEARTBEAT_S = 0.5
"""Longest silence of a stream: a heartbeat is sent after it."""

REASONS = {
    StopReason.END_OF_TEXT: generation_pb2.FINISH_REASON_END_OF_TEXT,
    StopReason.STOP: generation_pb2.FINISH_REASON_STOP,
    StopReason.LENGTH: generation_pb2.FINISH_REASON_LENGTH,
}


@dataclass(frozen=True, slots=True)
class EmittedToken:
    """One committed token, its index among the generated ones, the text it completes, and whether
    the target checked it."""

    index: int
    token_id: int
    text: str
    checked: bool


class Answer:
    """Streams one answer: each token once, in order, and not before it was given to the store.

    ``replayed`` are generated tokens that are committed already; the client has
    ``num_received`` of them and is not sent those again.
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
        self._deadline = metrics.deadline
        self._replayed = replayed
        self._num_received = num_received
        self._num_tokens = 0
        self._num_unchecked = 0
        self._text = TextStream(target.tokenizer, plan.prompt, plan.stop_strings)
        self._outbox: Mailbox[EmittedToken] = Mailbox()
        self._stats = metrics.stats

    async def events(
        self, mesh: Mesh, worked: Callable[[], None]
    ) -> AsyncGenerator[generation_pb2.GenerationEvent, None]:
        """The events of the answer; closing the generator cancels all work behind it.

        ``worked`` is called when the mesh has finished, even if events are still unread.
        """
        async with self._session.open():
            yield generation_pb2.GenerationEvent(started=self._started())
            work = asyncio.create_task(self._commit_all(mesh))
            work.add_done_callback(lambda _: self._outbox.wake())
            work.add_done_callback(lambda _: worked())
            try:
                while (tokens := await self._next_tokens(work)) or not work.done():
                    if event := await self._event(tokens):
                        yield event
                reason = await work
                await self._session.finish()
                yield generation_pb2.GenerationEvent(finished=self._finished(reason))
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    async def _commit_all(self, mesh: Mesh) -> StopReason:
        session_id = self._session.session.session_id
        with closing(CommittedPrefix(session_id, self._plan.prompt, mesh.holders)) as prefix:
            return await self._work(mesh, prefix)

    async def _work(self, mesh: Mesh, prefix: CommittedPrefix) -> StopReason:
        """Replay the tokens committed before, then run the strategy for the rest."""
        progress = Progress(self._plan.goal)
        for index, token in enumerate(self._replayed.token_ids):
            *_, last = progress.commit((token,), num_accepted=0)
            prefix.commit((token,))
            if reason := self._deliver(Commit((token,), 0, index not in self._replayed.unchecked)):
                return reason
            if isinstance(last, Finish):
                return last.reason
        goal = replace(self._plan.goal, max_tokens=progress.remaining)
        strategy = STRATEGIES[self._plan.strategy](goal)
        calls = Calls(
            mesh,
            prefix,
            self._plan.sampling,
            vocab_size=self._target.info.vocab_size,
            deadline=self._deadline,
            target=kind_of(self._target.info),
            epoch=self._session.epoch,
            filter_options=self._plan.filter_options,
        )
        return await Driver(strategy, calls, self._stats, self._deliver).drive()

    def _deliver(self, commit: Commit) -> StopReason | None:
        """Emit committed tokens, up to the one that completes a stop string."""
        for token in commit.token_ids:
            text = self._text.push(token)
            self._outbox.put(EmittedToken(self._num_tokens, token, text, commit.checked))
            self._num_unchecked += not commit.checked
            self._num_tokens += 1
            if self._text.stopped:
                return StopReason.STOP
        return None

    async def _next_tokens(self, work: asyncio.Task[StopReason]) -> list[EmittedToken]:
        """Tokens committed since the last call; none after ``HEARTBEAT_S``, or at the end."""
        if not work.done():
            await self._outbox.wait(asyncio.get_running_loop().time() + HEARTBEAT_S)
        return [self._outbox.take() for _ in range(len(self._outbox))]

    async def _event(self, tokens: list[EmittedToken]) -> generation_pb2.GenerationEvent | None:
        """Store ``tokens``, then return the event for the client; None if it has them already."""
        if not tokens:
            return generation_pb2.GenerationEvent(heartbeat=generation_pb2.Heartbeat())
        new = [token for token in tokens if token.index >= len(self._replayed.token_ids)]
        await self._session.append(
            [token.token_id for token in new],
            [index for index, token in enumerate(new) if not token.checked],
        )
        unsent = [token for token in tokens if token.index >= self._num_received]
        self._metrics.sent(len(new))
        if not unsent:
            return None
        return generation_pb2.GenerationEvent(chunk=self._chunk(unsent))

    def _chunk(self, tokens: list[EmittedToken]) -> generation_pb2.GenerationChunk:
        return generation_pb2.GenerationChunk(
            first_index=tokens[0].index,
            token_ids=[token.token_id for token in tokens],
            text="".join(token.text for token in tokens),
            unchecked=[index for index, token in enumerate(tokens) if not token.checked],
            resumable=self._session.resumable,
        )

    def _started(self) -> generation_pb2.GenerationStarted:
        return generation_pb2.GenerationStarted(
            session_id=self._session.session.session_id,
            epoch=self._session.epoch,
            model=self._target.info.name,
            strategy=self._plan.strategy,
            seed=self._plan.sampling.seed,
            num_prompt_tokens=len(self._plan.prompt),
            resumable=self._session.resumable,
            resume_token=self._session.session.resume_token,
            model_fingerprint=kind_of(self._target.info),
            heartbeat_ms=round(HEARTBEAT_S * 1e3),
        )

    def _finished(self, reason: StopReason) -> generation_pb2.GenerationFinished:
        text = self._text.flush()
        if self._text.stopped:
            reason = StopReason.STOP
        stats, duration_ms = self._stats, self._metrics.succeeded()
        return generation_pb2.GenerationFinished(
            finish_reason=REASONS[reason],
            text=text,
            resumable=self._session.resumable,
            stats=generation_pb2.GenerationStats(
                num_prompt_tokens=len(self._plan.prompt),
                num_output_tokens=self._num_tokens,
                num_verify_calls=stats.num_verify_calls,
                num_verified_tokens=stats.num_verified_tokens,
                num_accepted_tokens=stats.num_accepted_tokens,
                num_wasted_tokens=stats.num_wasted_tokens,
                num_drafted_tokens=stats.num_drafted_tokens,
                num_target_tokens=stats.num_target_tokens,
                num_unchecked_tokens=self._num_unchecked,
                time_to_first_token_ms=self._metrics.first_token_ms,
                duration_ms=duration_ms,
            ),
        )

"""One answer that survives broken calls.

A stream that breaks is continued on the next target, from the token after the last one
received, so that its reader sees one stream without lost or repeated tokens. If the session is
stored, ``Resume`` continues it; otherwise ``Generate`` continues from what was received.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

from specmesh.client.answers.received import ReceivedAnswer, bad_stream
from specmesh.client.answers.sessions import SavedSession
from specmesh.client.connections.channels import Endpoint
from specmesh.client.connections.cut_off import cut_off_is_an_error
from specmesh.client.connections.recovery import (
    Recovery,
    RetryPolicy,
    deadline_passed,
    has_no_room,
    is_lost,
    is_not_stored,
    out_of_time,
)
from specmesh.client.connections.refusals import CallerMetadata
from specmesh.client.connections.shared.answer import NeedsOwnCall, SharedAnswer
from specmesh.client.connections.status import from_rpc_error
from specmesh.client.connections.targets import Turns
from specmesh.client.errors import Cancelled, DeadlineExceeded, SpecmeshError, Unavailable
from specmesh.client.hooks import BrokenCall, Hooks
from specmesh.client.telemetry import GenerateSpan
from specmesh.v1 import events_pb2
from specmesh.v1 import generation_pb2 as pb

if TYPE_CHECKING:
    _Call = (
        grpc.aio.UnaryStreamCall[pb.GenerateRequest, pb.GenerateResponse]
        | grpc.aio.UnaryStreamCall[pb.ResumeRequest, pb.ResumeResponse]
        | SharedAnswer
    )

_HEARTBEATS_MISSED = 4
"""Number of missed heartbeats after which the orchestrator counts as frozen or cut off."""
_HEARTBEATS = ("specmesh-heartbeats", "early")
"""Asks for heartbeats even before an answer has begun, so that a long queue is not taken for a
broken stream."""
_CHUNK_INTERVAL = "specmesh-chunk-interval-ms"
"""The metadata that names the shortest time between two chunks."""
WHOLE_INTERVAL_S = 0.25
"""That time where nobody reads chunks, which then cost the mesh far less."""
_LAST_WORDS_S = 1.0
"""Longest wait for a call to end once its answer is complete."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A requested answer: a new one by ``request``, or the rest of ``saved``.

    ``request`` may be empty if ``saved`` is given; then only the store can continue the answer.
    ``chunk_interval_s`` is the shortest time between two chunks, None if there is no wish.
    """

    request: pb.GenerateRequest
    saved: SavedSession | None
    limits: RetryPolicy
    hooks: Hooks
    chunk_interval_s: float | None = None


class ResumableCall:
    """A reader of one answer's events; ``turns`` yields the target of each call. ``is_whole`` says
    that nobody waits for single chunks."""

    def __init__(
        self, turns: Turns, asked: Asked, span: GenerateSpan, *, is_whole: bool = False
    ) -> None:
        self.answer = ReceivedAnswer(asked.request, asked.saved)
        self._turns = turns
        self._limits = asked.limits
        self._deadline = asyncio.get_running_loop().time() + asked.limits.timeout_s
        self._span = span
        self._hooks = asked.hooks
        interval_s = WHOLE_INTERVAL_S if is_whole else 0.0
        if asked.chunk_interval_s is not None:
            interval_s = asked.chunk_interval_s
        self._own_metadata = [_HEARTBEATS]
        if interval_s:
            self._own_metadata.append((_CHUNK_INTERVAL, f"{interval_s * 1e3:.0f}"))
        # Jitter need not be unguessable.
        self._recovery = Recovery(asked.limits, random.Random())  # noqa: S311
        self._target = next(turns)
        self._call: _Call | None = None
        self._needs_own_call = False
        self._num_suspensions = 0
        """Those of the target when the current call began."""
        self._called_as: tuple[CallerMetadata, float] | None = None
        """The caller and the time left of the current call; None if none was made."""
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._has_answered = False
        self._broken: SpecmeshError | None = None
        """The error of the latest call that broke without a token."""

    async def next_event(self) -> events_pb2.GenerationEvent:
        """Return the next event; `finished` is the last, and each resume begins with `started`.

        Raises a SpecmeshError when the answer can't be continued: Cancelled once it is closed.
        """
        while not self.is_closed:
            try:
                event = await self._read()
                self._has_answered = True
                if self.answer.note(event):
                    self._recovery.progressed()
                    self._broken = None
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not self.is_closed or (task is not None and task.cancelling()):
                    raise
            except NeedsOwnCall:
                self._needs_own_call = True
                self._call = None
            except SpecmeshError as error:
                if self.is_closed:
                    break
                self.cancel()
                if self._was_suspended and not isinstance(error, DeadlineExceeded):
                    continue  # The next call begins after `reopen`, and nothing is broken.
                await asyncio.wait({self._closed}, timeout=self._pause_after(error))
                self._target = next(self._turns)
            else:
                if not event.HasField("heartbeat"):
                    return event
        raise _closed_by_caller()

    @property
    def _was_suspended(self) -> bool:
        return self._target.num_suspensions > self._num_suspensions

    async def end(self) -> None:
        """Wait, at most `_LAST_WORDS_S`, for the call of a complete answer to end: if cancelled
        before its status arrives, the orchestrator's metrics and traces count it as cancelled."""
        call = self._call
        if call is not None:
            with suppress(TimeoutError, SpecmeshError, grpc.aio.AioRpcError, NeedsOwnCall):
                async with asyncio.timeout(_LAST_WORDS_S), cut_off_is_an_error(self._target):
                    await call.read()

    @property
    def is_closed(self) -> bool:
        """True after `close`."""
        return self._closed.done()

    def close(self) -> None:
        """Cancel the answer: it is not resumed, and whoever waits for its next event is told."""
        if not self.is_closed:
            self._closed.set_result(None)
        self.cancel()

    def cancel(self) -> None:
        """Cancel the current call, and with it all work behind it; the next event is asked for by
        another call."""
        if self._call is not None:
            self._call.cancel()
            self._call = None

    async def _read(self) -> events_pb2.GenerationEvent:
        if self._call is None:
            self._has_answered = False
            self._called_as = None
            self._num_suspensions = self._target.num_suspensions
            self._call = await self._open(self._target)
        silence_s = self._longest_silence_s()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(silence_s) as silence, cut_off_is_an_error(self._target):
                    response = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error.with_traceback(None)
        if silence.expired():
            raise Unavailable(f"no event for {silence_s:g} s", code=grpc.StatusCode.UNAVAILABLE)
        if not isinstance(response, pb.GenerateResponse | pb.ResumeResponse):
            raise bad_stream("the stream ended without a `finished` event")
        return response.event

    def _longest_silence_s(self) -> float:
        """Return the timeout for the next event. With heartbeats it doubles with each call that
        broke without a token, because the orchestrator may just be slow."""
        if self.answer.started is None:
            return self._limits.start_s
        heartbeat_s = self.answer.started.heartbeat_ms / 1e3
        if not heartbeat_s:
            return self._limits.idle_s if self._has_answered else self._limits.start_s
        promised_s = _HEARTBEATS_MISSED * heartbeat_s * 2.0**self._recovery.num_broken
        return min(promised_s, self._limits.idle_s)

    async def _open(self, target: Endpoint) -> _Call:
        self._span.calling(target.address)
        target.readers.add(self)
        try:
            # The target is not to blame for a slow function that gives the token.
            async with asyncio.timeout_at(self._deadline):
                caller = await target.metadata()
        except TimeoutError:
            raise deadline_passed() from None
        if self.is_closed:
            raise _closed_by_caller()
        remaining_s = self._deadline - asyncio.get_running_loop().time()
        if remaining_s <= 0:
            raise deadline_passed()
        if self.answer.started is None:
            refusal = target.refusal(caller, remaining_s)
            if refusal is not None:
                raise refusal
        self._called_as = caller, remaining_s
        metadata = (*caller, *self._span.metadata(), *self._own_metadata)
        request = self.answer.next_request()
        if not self._needs_own_call:
            shared = target.shared_answer(request, metadata, remaining_s)
            if shared is not None:
                return shared
        if isinstance(request, pb.ResumeRequest):
            return target.generation.Resume(request, timeout=remaining_s, metadata=metadata)
        return target.generation.Generate(request, timeout=remaining_s, metadata=metadata)

    def _pause_after(self, error: SpecmeshError) -> float:
        """Return the pause before the next call in seconds; raise ``error`` if it is final."""
        if is_lost(error):
            self._target.broke(error)
        answer = self.answer
        if answer.is_stored and is_not_stored(error) and answer.can_do_without_store:
            answer.is_stored = False
            return 0.0
        if answer.forgets_what_is_unknown(error):
            return 0.0
        if error.reason == "PROMPT_CHANGED":
            # The session may be in the store by now, and with it the prompt as it was.
            answer.is_stored = True
        if answer.takes_over(error):
            return 0.0
        if isinstance(error, DeadlineExceeded):
            raise out_of_time(error, self._broken)
        self._broken = error
        has_begun = answer.started is not None
        if has_no_room(error) and not has_begun and self._called_as is not None:
            self._target.lacked_room(error, *self._called_as)
        pause_s = self._recovery.pause_s(
            error,
            has_begun=has_begun,
            # Answers that have begun have their turn before others at any target, so they wait.
            others_have_room=has_no_room(error) and not (has_begun or self._turns.all_passed_over),
        )
        if pause_s is None or asyncio.get_running_loop().time() + pause_s > self._deadline:
            raise error
        broken = BrokenCall(
            target=self._target.address,
            error=error,
            num_broken=self._recovery.num_broken,
            pause_s=pause_s,
            session_id=answer.session_id,
        )
        self._hooks.broke(broken)
        return pause_s


def _closed_by_caller() -> Cancelled:
    return Cancelled("the stream was closed", code=grpc.StatusCode.CANCELLED)

"""One answer that survives broken calls.

A stream that breaks is continued on the next target, from the token after the last one
received, so that its reader sees one stream without lost or repeated tokens. If the session is
stored, ``Resume`` continues it; otherwise ``Generate`` continues from what was received.

Each call has a higher epoch than those before it, so a call that hung, even the first one, can't
take the session back from a later call.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

from specmesh.client.answers.sessions import SavedSession
from specmesh.client.connections.channels import Endpoint, cut_off_is_unavailable
from specmesh.client.connections.recovery import (
    Recovery,
    RetryPolicy,
    is_lost,
    is_not_stored,
    out_of_time,
)
from specmesh.client.connections.status import from_rpc_error
from specmesh.client.errors import (
    DeadlineExceeded,
    Internal,
    SessionTaken,
    SpecmeshError,
    Unavailable,
)
from specmesh.client.hooks import BrokenCall, Hooks
from specmesh.client.telemetry import GenerateSpan
from specmesh.v1 import events_pb2
from specmesh.v1 import generation_pb2 as pb

if TYPE_CHECKING:
    _Call = (
        grpc.aio.UnaryStreamCall[pb.GenerateRequest, pb.GenerateResponse]
        | grpc.aio.UnaryStreamCall[pb.ResumeRequest, pb.ResumeResponse]
    )

_HEARTBEATS_MISSED = 4
"""Number of missed heartbeats after which the orchestrator counts as frozen or cut off."""
_LAST_WORDS_S = 1.0
"""Longest wait for a call to end once its answer is complete."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A requested answer: a new one by ``request``, or the rest of ``saved``.

    ``request`` may be empty if ``saved`` is given; then only the store can continue the answer.
    """

    request: pb.GenerateRequest
    saved: SavedSession | None
    limits: RetryPolicy
    hooks: Hooks


class ResumableCall:
    """A reader of one answer's events; ``targets`` yields the target of each call, endlessly."""

    def __init__(
        self,
        targets: Iterator[Endpoint],
        asked: Asked,
        span: GenerateSpan,
    ) -> None:
        self.num_resumes = 0
        self.started: events_pb2.GenerationStarted | None = None
        self._received = pb.Received()
        self._targets = targets
        self._request = asked.request
        self._limits = asked.limits
        self._deadline = asyncio.get_running_loop().time() + asked.limits.timeout_s
        self._span = span
        self._hooks = asked.hooks
        # Jitter need not be unguessable.
        self._recovery = Recovery(asked.limits, random.Random())  # noqa: S311
        self._target = next(targets)
        self._call: _Call | None = None
        self._has_answered = False
        self._epoch = 0
        self._is_stored = False
        self._may_take_over = True
        self._broken: SpecmeshError | None = None
        """The error of the latest call that broke without a token."""
        if asked.saved is not None:
            self._begin_after(asked.saved)

    def _begin_after(self, saved: SavedSession) -> None:
        self.started = events_pb2.GenerationStarted(
            session_id=saved.session_id,
            resume_token=saved.resume_token,
            epoch=saved.epoch,
            seed=self._request.sampling.seed,
            strategy=self._request.speculation.strategy,
            model_fingerprint=self._request.model_fingerprint,
        )
        self._received.CopyFrom(self._request.received)
        self._received.token_ids[:] = saved.token_ids
        self._received.unchecked[:] = saved.unchecked
        self._epoch = saved.epoch
        self._is_stored = True

    async def next_event(self) -> events_pb2.GenerationEvent:
        """Return the next event; `finished` is the last, and each resume begins with `started`.

        Raises a SpecmeshError when the answer can't be continued.
        """
        while True:
            try:
                event = await self._read()
                self._note(event)
            except SpecmeshError as error:
                self.cancel()
                await self._prepare_next_call(error)
                self._target = next(self._targets)
            else:
                if not event.HasField("heartbeat"):
                    return event

    def saved(self, text: str) -> SavedSession | None:
        """Return the state to resume the answer after ``text``, the text read so far; None before
        it has begun."""
        if self.started is None:
            return None
        request = b""
        if self._can_do_without_store:
            carried_on = self._generate_request()
            # SavedSession has fields of its own for these.
            carried_on.received.ClearField("token_ids")
            carried_on.received.ClearField("unchecked")
            carried_on.ClearField("epoch")
            request = carried_on.SerializeToString()
        return SavedSession(
            session_id=self.started.session_id,
            resume_token=self.started.resume_token,
            epoch=self._epoch,
            token_ids=tuple(self._received.token_ids),
            unchecked=tuple(self._received.unchecked),
            text=text,
            request=request,
        )

    async def end(self) -> None:
        """Wait, at most `_LAST_WORDS_S`, for the call of a complete answer to end: if cancelled
        before its status arrives, the orchestrator's metrics and traces count it as cancelled."""
        call = self._call
        if call is not None:
            with suppress(TimeoutError, SpecmeshError, grpc.aio.AioRpcError):
                async with asyncio.timeout(_LAST_WORDS_S), cut_off_is_unavailable(self._target):
                    await call.read()

    def cancel(self) -> None:
        """Cancel the current call, and with it all work behind it."""
        if self._call is not None:
            self._call.cancel()
            self._call = None

    async def _read(self) -> events_pb2.GenerationEvent:
        if self._call is None:
            self._has_answered = False
        silence_s = self._longest_silence_s()
        try:
            async with asyncio.timeout(silence_s), cut_off_is_unavailable(self._target):
                if self._call is None:
                    self._call = await self._open(self._target)
                response = await self._call.read()
        except TimeoutError as error:
            raise Unavailable(
                f"no event for {silence_s:g} s", code=grpc.StatusCode.UNAVAILABLE
            ) from error
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        if not isinstance(response, pb.GenerateResponse | pb.ResumeResponse):
            raise _bad_stream("the stream ended without a `finished` event")
        return response.event

    def _longest_silence_s(self) -> float:
        """Return the timeout for the next event. With heartbeats it doubles with each call that
        broke without a token, because the orchestrator may just be slow."""
        if self.started is None:
            return self._limits.start_s
        heartbeat_s = self.started.heartbeat_ms / 1e3
        if not heartbeat_s:
            return self._limits.idle_s if self._has_answered else self._limits.start_s
        promised_s = _HEARTBEATS_MISSED * heartbeat_s * 2.0**self._recovery.num_broken
        return min(promised_s, self._limits.idle_s)

    async def _open(self, target: Endpoint) -> _Call:
        self._span.calling(target.address)
        target.readers.add(self)
        metadata = (*await target.metadata(), *self._span.metadata())
        remaining_s = self._deadline - asyncio.get_running_loop().time()
        if remaining_s <= 0:
            raise DeadlineExceeded("the deadline passed", code=grpc.StatusCode.DEADLINE_EXCEEDED)
        self._epoch += 1
        if self.started is not None and self._is_stored:
            resume = self._resume_request(self.started)
            return target.generation.Resume(resume, timeout=remaining_s, metadata=metadata)
        request = self._generate_request()
        return target.generation.Generate(request, timeout=remaining_s, metadata=metadata)

    def _resume_request(self, started: events_pb2.GenerationStarted) -> pb.ResumeRequest:
        return pb.ResumeRequest(
            session_id=started.session_id,
            resume_token=started.resume_token,
            epoch=self._epoch,
            received=self._received,
        )

    def _generate_request(self) -> pb.GenerateRequest:
        request = pb.GenerateRequest()
        request.CopyFrom(self._request)
        request.epoch = self._epoch
        if self.started is not None:
            request.sampling.seed = self.started.seed
            request.speculation.strategy = self.started.strategy
            request.model_fingerprint = self.started.model_fingerprint
            request.received.CopyFrom(self._received)
        return request

    @property
    def _can_do_without_store(self) -> bool:
        return self._request.WhichOneof("prompt") is not None

    def _note(self, event: events_pb2.GenerationEvent) -> None:
        self._has_answered = True
        if event.HasField("started"):
            if self.started is not None:
                self.num_resumes += 1
            self.started = event.started
            # Older orchestrators don't send these.
            self._received.prompt_digest = (
                event.started.prompt_digest or self._received.prompt_digest
            )
            self._received.max_tokens = event.started.max_tokens or self._received.max_tokens
            self._is_stored = event.started.resumable
            self._may_take_over = False
        elif self.started is None:
            raise _bad_stream("the stream did not begin with `started`")
        elif event.HasField("chunk"):
            self._take(event.chunk)

    def _take(self, chunk: events_pb2.GenerationChunk) -> None:
        num_received = len(self._received.token_ids)
        if chunk.first_index != num_received:
            raise _bad_stream(
                f"expected token {num_received}, but the chunk begins at {chunk.first_index}"
            )
        self._received.unchecked.extend(
            num_received + index
            for index, kind in enumerate(chunk.kinds)
            if kind == events_pb2.TOKEN_KIND_UNCHECKED
        )
        self._received.token_ids.extend(chunk.token_ids)
        # A stored session can be resumed even if it lacks some tokens that were received.
        self._is_stored = self._is_stored or chunk.resumable
        self._recovery.progressed()
        self._broken = None

    async def _prepare_next_call(self, error: SpecmeshError) -> None:
        """Wait until the next call may be made after ``error``; raise ``error`` if it is final."""
        if is_lost(error):
            self._target.broke(error)
        if self._is_stored and is_not_stored(error) and self._can_do_without_store:
            self._is_stored = False
            return
        if self._forget_what_is_unknown(error):
            return
        if error.reason == "PROMPT_CHANGED":
            # The session may be in the store by now, and with it the prompt as it was.
            self._is_stored = True
        if self._may_take_over and isinstance(error, SessionTaken):
            # A caller who resumes a saved session, or reuses a request id, wants the answer even if
            # other calls have raised its epoch meanwhile.
            self._may_take_over = False
            self._epoch = max(self._epoch, int(error.metadata.get("current_epoch", 0)))
            return
        if isinstance(error, DeadlineExceeded):
            raise out_of_time(error, self._broken)
        self._broken = error
        pause_s = self._recovery.pause_s(error, has_begun=self.started is not None)
        if pause_s is None or asyncio.get_running_loop().time() + pause_s > self._deadline:
            raise error
        broken = BrokenCall(
            target=self._target.address,
            error=error,
            num_broken=self._recovery.num_broken,
            pause_s=pause_s,
            session_id=self.started.session_id if self.started else "",
        )
        self._hooks.broke(broken)
        await asyncio.sleep(pause_s)

    def _forget_what_is_unknown(self, error: SpecmeshError) -> bool:
        """Drop the fields that a newer orchestrator sent, if ``error`` says that an older one does
        not know them; return whether that was so and the call may be repeated without them."""
        told = self._received.prompt_digest or self._received.max_tokens
        if error.reason != "UNKNOWN_FIELD" or not told:
            return False
        self._received.ClearField("prompt_digest")
        self._received.ClearField("max_tokens")
        return True


def _bad_stream(message: str) -> Internal:
    return Internal(message, code=grpc.StatusCode.INTERNAL, reason="BAD_STREAM")

"""One answer over as many calls as it takes.

A stream that breaks is continued on the next target, from the token after the last one
received, so that its reader sees one stream: no token twice, none lost. ``Resume`` does so if the
session is stored; otherwise ``Generate`` continues from what was received.

Each call has a higher epoch than those before: a call that hung, also one that was to begin the
answer, can't take the session back once another has it.
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
"""After so many in a row the orchestrator counts as frozen or cut off."""
_LAST_WORDS_S = 1.0
"""How long a call may take to end once the answer is complete."""


@dataclass(frozen=True, slots=True)
class Asked:
    """An answer that is asked for: begun by ``request``, or carried on after ``saved``.

    ``request`` may be empty for one that is carried on: then only the store can do it.
    """

    request: pb.GenerateRequest
    saved: SavedSession | None
    limits: RetryPolicy
    hooks: Hooks


class ResumableCall:
    """Reads the events of one answer; ``targets`` is endless and yields the target of each call."""

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
        """Why the last call that brought no token had to be made again."""
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
        """The next event; `finished` is the last, and a later `started` follows each resume.

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
        """What carries the answer on after ``text``, which was read; None before it has begun."""
        if self.started is None:
            return None
        request = b""
        if self._can_do_without_store:
            carried_on = self._generate_request()
            # They are in the saved session itself.
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
        """Return when the call of a complete answer has ended, or soon: one that is cancelled
        before its status has come is a cancelled one in the orchestrator's metrics and traces."""
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
        """With heartbeats, doubled by each call that broke without a token: it may be slow."""
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
            # An older orchestrator doesn't tell them.
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
                f"token {num_received} was due, but the chunk begins at {chunk.first_index}"
            )
        self._received.unchecked.extend(
            num_received + index
            for index, kind in enumerate(chunk.kinds)
            if kind == events_pb2.TOKEN_KIND_UNCHECKED
        )
        self._received.token_ids.extend(chunk.token_ids)
        # A session once stored can be resumed even if it lacks tokens that were received.
        self._is_stored = self._is_stored or chunk.resumable
        self._recovery.progressed()
        self._broken = None

    async def _prepare_next_call(self, error: SpecmeshError) -> None:
        """Return when the next call may be made after ``error``; raise it if none may."""
        if is_lost(error) and not is_not_stored(error):
            self._target.broke(error)
        if self._is_stored and is_not_stored(error) and self._can_do_without_store:
            self._is_stored = False
            return
        if self._forget_what_is_unknown(error):
            return
        if error.reason == "PROMPT_CHANGED":
            # The store, which has the prompt itself, may have the session by now.
            self._is_stored = True
        if self._may_take_over and isinstance(error, SessionTaken):
            # Whoever resumes a session by hand, or starts under an id that was used before, wants
            # the answer, wherever it has got to meanwhile.
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
        """Whether an orchestrator refused what a newer one had told of the answer: it is asked
        again without."""
        told = self._received.prompt_digest or self._received.max_tokens
        if error.reason != "UNKNOWN_FIELD" or not told:
            return False
        self._received.ClearField("prompt_digest")
        self._received.ClearField("max_tokens")
        return True


def _bad_stream(message: str) -> Internal:
    return Internal(message, code=grpc.StatusCode.INTERNAL, reason="BAD_STREAM")

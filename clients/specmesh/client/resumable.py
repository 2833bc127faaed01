"""One answer over as many calls as it takes.

A stream that breaks is continued on the next target, from the token after the last one
received, so that its reader sees one stream: no token twice, none lost. ``Resume`` does so if the
session is stored; otherwise ``Generate`` continues from what was received.

Each call has a higher epoch than those before: a call that hung can't take the session back once
the answer has been continued elsewhere.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

import grpc

from specmesh.client.errors import DeadlineExceeded, Internal, SpecmeshError, Unavailable
from specmesh.client.recovery import Limits, Recovery, is_lost, is_not_stored
from specmesh.client.status import from_rpc_error
from specmesh.client.targets import Endpoint
from specmesh.client.telemetry import GenerateSpan
from specmesh.v1 import generation_pb2 as pb

if TYPE_CHECKING:
    _Call = (
        grpc.aio.UnaryStreamCall[pb.GenerateRequest, pb.GenerateResponse]
        | grpc.aio.UnaryStreamCall[pb.ResumeRequest, pb.ResumeResponse]
    )

_HEARTBEATS_MISSED = 4
"""After so many in a row the orchestrator counts as frozen or cut off."""


class ResumableCall:
    """Reads the events of one answer; ``targets`` is endless and yields the target of each call."""

    def __init__(
        self,
        targets: Iterator[Endpoint],
        request: pb.GenerateRequest,
        limits: Limits,
        span: GenerateSpan,
    ) -> None:
        self.num_resumes = 0
        self.started: pb.GenerationStarted | None = None
        self._received = pb.Received()
        self._targets = targets
        self._request = request
        self._limits = limits
        self._deadline = asyncio.get_running_loop().time() + limits.timeout_s
        self._span = span
        # Jitter need not be unguessable.
        self._recovery = Recovery(limits, random.Random())  # noqa: S311
        self._target: Endpoint | None = None
        self._call: _Call | None = None
        self._has_answered = False
        self._epoch = 0
        self._is_stored = False

    async def next_event(self) -> pb.GenerationEvent:
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
            else:
                if not event.HasField("heartbeat"):
                    return event

    def cancel(self) -> None:
        """Cancel the current call, and with it all work behind it."""
        if self._call is not None:
            self._call.cancel()
            self._call = None

    async def _read(self) -> pb.GenerationEvent:
        if self._call is None:
            self._has_answered = False
            self._target = next(self._targets)
            self._call = self._open(self._target)
        silence_s = self._longest_silence_s()
        try:
            async with asyncio.timeout(silence_s):
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

    def _open(self, target: Endpoint) -> _Call:
        remaining_s = self._deadline - asyncio.get_running_loop().time()
        if remaining_s <= 0:
            raise DeadlineExceeded("the deadline passed", code=grpc.StatusCode.DEADLINE_EXCEEDED)
        self._span.calling(target.address)
        metadata = self._span.metadata()
        self._epoch += 1
        if self.started is not None and self._is_stored:
            resume = self._resume_request(self.started)
            return target.stub.Resume(resume, timeout=remaining_s, metadata=metadata)
        request = self._request if self.started is None else self._carry_on_request(self.started)
        return target.stub.Generate(request, timeout=remaining_s, metadata=metadata)

    def _resume_request(self, started: pb.GenerationStarted) -> pb.ResumeRequest:
        return pb.ResumeRequest(
            session_id=started.session_id,
            resume_token=started.resume_token,
            epoch=self._epoch,
            received=self._received,
        )

    def _carry_on_request(self, started: pb.GenerationStarted) -> pb.GenerateRequest:
        request = pb.GenerateRequest()
        request.CopyFrom(self._request)
        request.sampling.seed = started.seed
        request.speculation.strategy = started.strategy
        request.model_fingerprint = started.model_fingerprint
        request.epoch = self._epoch
        request.received.CopyFrom(self._received)
        return request

    def _note(self, event: pb.GenerationEvent) -> None:
        self._has_answered = True
        if event.HasField("started"):
            if self.started is not None:
                self.num_resumes += 1
            self.started = event.started
            self._is_stored = event.started.resumable
        elif self.started is None:
            raise _bad_stream("the stream did not begin with `started`")
        elif event.HasField("chunk"):
            self._take(event.chunk)

    def _take(self, chunk: pb.GenerationChunk) -> None:
        num_received = len(self._received.token_ids)
        if chunk.first_index != num_received:
            raise _bad_stream(
                f"token {num_received} was due, but the chunk begins at {chunk.first_index}"
            )
        self._received.unchecked.extend(num_received + index for index in chunk.unchecked)
        self._received.token_ids.extend(chunk.token_ids)
        # A session once stored can be resumed even if it lacks tokens that were received.
        self._is_stored = self._is_stored or chunk.resumable
        self._recovery.progressed()

    async def _prepare_next_call(self, error: SpecmeshError) -> None:
        """Return when the next call may be made after ``error``; raise it if none may."""
        if is_lost(error) and not is_not_stored(error) and self._target is not None:
            self._target.broke()
        if self._is_stored and is_not_stored(error):
            self._is_stored = False
            return
        pause_s = self._recovery.pause_s(error, has_begun=self.started is not None)
        if pause_s is None or asyncio.get_running_loop().time() + pause_s > self._deadline:
            raise error
        await asyncio.sleep(pause_s)


def _bad_stream(message: str) -> Internal:
    return Internal(message, code=grpc.StatusCode.INTERNAL, reason="BAD_STREAM")

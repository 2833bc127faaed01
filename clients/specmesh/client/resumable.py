"""One answer over as many calls as it takes.

A stream that breaks is carried on by ``Resume`` on the next target, from the token after
the last one received, so that its reader sees one stream: nothing twice, nothing lost.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

from specmesh.client.errors import DeadlineExceeded, Internal, SpecmeshError, Unavailable
from specmesh.client.status import from_rpc_error
from specmesh.client.telemetry import GenerateSpan
from specmesh.v1 import generation_pb2 as pb

if TYPE_CHECKING:  # The stub's asynchronous face exists for the type checker only.
    from specmesh.v1.generation_pb2_grpc import GenerationServiceAsyncStub

    _Call = (
        grpc.aio.UnaryStreamCall[pb.GenerateRequest, pb.GenerateResponse]
        | grpc.aio.UnaryStreamCall[pb.ResumeRequest, pb.ResumeResponse]
    )


_FIRST_BACKOFF_S = 0.1
_LONGEST_BACKOFF_S = 2.0


@dataclass(frozen=True, slots=True)
class Target:
    """An orchestrator: its address (host:port) and the stub that calls it."""

    address: str
    stub: GenerationServiceAsyncStub


@dataclass(frozen=True, slots=True)
class Limits:
    """When to give up."""

    timeout_s: float
    """For the whole answer."""
    idle_s: float
    """Longest silence of an open stream."""
    max_starts: int
    """How many targets may be unreachable before the answer has begun."""
    max_resumes: int
    """How many broken calls in a row may bring no token once it has begun."""


class ResumableCall:
    """Reads the events of one answer; ``targets`` is endless and names whom to call next."""

    def __init__(
        self,
        targets: Iterator[Target],
        request: pb.GenerateRequest,
        limits: Limits,
        span: GenerateSpan,
    ) -> None:
        self.num_resumes = 0
        self.started: pb.GenerationStarted | None = None
        self.num_received_tokens = 0
        self._targets = targets
        self._request = request
        self._limits = limits
        self._deadline = asyncio.get_running_loop().time() + limits.timeout_s
        self._span = span
        self._call: _Call | None = None
        self._num_broken = 0
        self._epoch: int | None = None
        # Each of these may have moved the epoch on before it broke.
        self._num_unanswered_resumes = 0

    async def next_event(self) -> pb.GenerationEvent:
        """The next event; `finished` is the last, and a later `started` follows each resume.

        Raises a SpecmeshError when the answer can't be carried on.
        """
        while True:
            try:
                event = await self._read()
                self._note(event)
            except SpecmeshError as error:
                self.cancel()
                await self._prepare_next_call(error)
            else:
                return event

    def cancel(self) -> None:
        """Stop the call at work, and with it all work behind it."""
        if self._call is not None:
            self._call.cancel()
            self._call = None

    async def _read(self) -> pb.GenerationEvent:
        if self._call is None:
            self._call = self._open(next(self._targets))
        try:
            async with asyncio.timeout(self._limits.idle_s):
                response = await self._call.read()
        except TimeoutError as error:
            raise Unavailable(
                f"no event for {self._limits.idle_s:g} s", code=grpc.StatusCode.UNAVAILABLE
            ) from error
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        if not isinstance(response, pb.GenerateResponse | pb.ResumeResponse):
            raise Internal(
                "the stream ended without a `finished` event", code=grpc.StatusCode.INTERNAL
            )
        return response.event

    def _open(self, target: Target) -> _Call:
        remaining_s = self._deadline - asyncio.get_running_loop().time()
        if remaining_s <= 0:
            raise DeadlineExceeded("the deadline passed", code=grpc.StatusCode.DEADLINE_EXCEEDED)
        self._span.calling(target.address)
        metadata = self._span.metadata()
        if self.started is None:
            return target.stub.Generate(self._request, timeout=remaining_s, metadata=metadata)
        self._num_unanswered_resumes += 1
        resume = pb.ResumeRequest(
            session_id=self.started.session_id,
            num_received_tokens=self.num_received_tokens,
            epoch=self._epoch,
        )
        return target.stub.Resume(resume, timeout=remaining_s, metadata=metadata)

    def _note(self, event: pb.GenerationEvent) -> None:
        if event.HasField("started"):
            if self.started is not None:
                self.num_resumes += 1
            self.started = event.started
            self._epoch = event.started.epoch
            self._num_unanswered_resumes = 0
        elif self.started is None:
            raise Internal("the stream did not begin with `started`", code=grpc.StatusCode.INTERNAL)
        elif event.HasField("chunk"):
            if event.chunk.first_index != self.num_received_tokens:
                raise Internal(
                    f"token {self.num_received_tokens} was due, "
                    f"but the chunk begins at {event.chunk.first_index}",
                    code=grpc.StatusCode.INTERNAL,
                )
            self.num_received_tokens += len(event.chunk.token_ids)
            self._num_broken = 0

    async def _prepare_next_call(self, error: SpecmeshError) -> None:
        """Return when another call may succeed where this one failed, else raise ``error``."""
        self._num_broken += 1
        if self.started is None:
            # Nothing is lost yet, so the caller hears at once that nobody is there.
            if isinstance(error, Unavailable) and self._num_broken < self._limits.max_starts:
                return
            raise error
        backoff_s = self._backoff_s()
        too_late = asyncio.get_running_loop().time() + backoff_s > self._deadline
        exhausted = self._num_broken > self._limits.max_resumes
        if exhausted or too_late or not self._may_resume(self.started, error):
            raise error
        await asyncio.sleep(backoff_s)

    def _may_resume(self, started: pb.GenerationStarted, error: SpecmeshError) -> bool:
        if isinstance(error, Unavailable):
            return started.resumable
        if error.reason == "STALE_EPOCH" and self._num_unanswered_resumes > 1:
            # An earlier, broken Resume of our own took it. Its orchestrator's lease must run
            # out first, for without the epoch we can't show that the session is ours.
            self._epoch = None
            return True
        return error.reason == "SESSION_HELD" and self._epoch is None

    def _backoff_s(self) -> float:
        """None before the first resume, for the next target is likely well; then doubling."""
        if self._num_broken == 1:
            return 0.0
        longest_s = min(_FIRST_BACKOFF_S * 2.0 ** (self._num_broken - 2), _LONGEST_BACKOFF_S)
        # Jitter spreads the clients of a lost orchestrator; it need not be unguessable.
        return longest_s * random.uniform(0.5, 1)  # noqa: S311

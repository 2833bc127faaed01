"""The mesh driver: performs a strategy's commands over gRPC and feeds back what happened.

The loop is ``drive``; it decides nothing. Each draft and verification is an asyncio task,
so cancelling a command cancels the call, which cancels the work behind it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import aclosing

import grpc
import grpc.aio
from opentelemetry import metrics

from specmesh.orchestrator.mesh.calls import Calls
from specmesh.orchestrator.rounds import Rounds
from specmesh.orchestrator.strategies.base import (
    Cancel,
    Command,
    Commit,
    Draft,
    Event,
    Failed,
    Finish,
    FinishReason,
    GiveUp,
    Strategy,
    TaskId,
    Verified,
    Verify,
)
from specmesh.orchestrator.tally import Tally
from specmesh.serving.errors import ResourceExhausted, ServiceError, Unavailable, retry_after_s

log = logging.getLogger(__name__)

_meter = metrics.get_meter("specmesh.orchestrator")
_failures = _meter.create_counter(
    "specmesh.task.failures", unit="{task}", description="drafts and verifications that failed"
)

BUSY = frozenset({grpc.StatusCode.RESOURCE_EXHAUSTED})
LOST = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})

Deliver = Callable[[Commit], FinishReason | None]
"""Takes committed tokens; returns a reason if the answer must end with them."""


class Driver:
    """One strategy at work on one request."""

    def __init__(self, strategy: Strategy, calls: Calls, tally: Tally, deliver: Deliver) -> None:
        self._strategy = strategy
        self._calls = calls
        self._tally = tally
        self._deliver = deliver
        self._rounds = Rounds()
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._tasks: dict[TaskId, asyncio.Task[None]] = {}
        self._cancelled: set[TaskId] = set()
        self._errors: dict[TaskId, Exception] = {}

    async def drive(self) -> FinishReason:
        """Run to the end of the answer; raises the error behind a ``GiveUp``."""
        try:
            commands = self._strategy.start()
            while True:
                for command in commands:
                    if reason := self._perform(command):
                        return reason
                event = await self._next_event()
                self._tally.happened(event)
                commands = self._strategy.handle(event)
        finally:
            await self._cancel_all()
            self._rounds.close()

    def _perform(self, command: Command) -> FinishReason | None:
        match command:
            case Draft():
                self._run(command.task, self._draft(command))
            case Verify():
                self._tally.asked(command)
                self._run(command.task, self._verify(command))
            case Cancel(task=task):
                self._cancel(task)
            case Commit():
                self._tally.committed(command)
                self._rounds.committed(command)
                return self._deliver(command)
            case Finish(reason=reason):
                return reason
            case GiveUp(failed=task):
                raise _for_client(self._errors[task])
        return None

    async def _draft(self, command: Draft) -> None:
        async with aclosing(self._calls.draft(command, self._rounds.context)) as parts:
            async for part in parts:
                self._events.put_nowait(part)

    async def _verify(self, command: Verify) -> None:
        verdict = await self._calls.verify(command, self._rounds.context)
        self._events.put_nowait(Verified(command.task, verdict))

    def _run(self, task: TaskId, work: Coroutine[None, None, None]) -> None:
        self._tasks[task] = asyncio.create_task(self._guard(task, work))

    async def _guard(self, task: TaskId, work: Coroutine[None, None, None]) -> None:
        """Turn whatever ends a task without a result into ``Failed``, except cancellation."""
        try:
            await work
        except Exception as error:
            if not isinstance(error, grpc.aio.AioRpcError | ServiceError):
                log.exception("task broke")
            self._errors[task] = error
            self._events.put_nowait(Failed(task))
            _failures.add(1)
        finally:
            self._tasks.pop(task, None)

    def _cancel(self, task: TaskId) -> None:
        self._cancelled.add(task)
        if running := self._tasks.pop(task, None):
            running.cancel()

    async def _next_event(self) -> Event:
        """The next event of a task that is still wanted."""
        while (event := await self._events.get()).task in self._cancelled:
            pass
        return event

    async def _cancel_all(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _for_client(error: Exception) -> Exception:
    """What the client is told when the mesh behind us fails; it knows nothing of replicas."""
    if isinstance(error, grpc.aio.AioRpcError):
        details = error.details() or ""
        if error.code() in BUSY:
            return ResourceExhausted(
                "VERIFIERS_BUSY", details, retry_after_s=retry_after_s(error) or 1.0
            )
        if error.code() in LOST:
            return Unavailable("VERIFIER_LOST", f"no replica of the target answered: {details}")
    return error

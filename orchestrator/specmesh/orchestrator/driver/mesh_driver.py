"""The mesh driver: performs a strategy's commands over gRPC and feeds back events.

The loop is ``drive``, which makes no decisions. Each draft and verification is an asyncio task, so
that cancelling a command cancels its call, which stops the work at the replica.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import NamedTuple

import grpc
import grpc.aio

from specmesh.decoding.errors import InvalidField
from specmesh.orchestrator.driver.rounds import Rounds
from specmesh.orchestrator.driver.stats import RequestStats
from specmesh.orchestrator.replicas.calls.cancellation import TaskCancellation
from specmesh.orchestrator.replicas.calls.cause import Cause, Moment, clock
from specmesh.orchestrator.replicas.calls.command_context import CommandContext
from specmesh.orchestrator.replicas.calls.mesh_calls import Calls
from specmesh.orchestrator.replicas.retries.faults import CallFault, fault_of
from specmesh.orchestrator.strategies.base import Strategy
from specmesh.orchestrator.strategies.commands import (
    Assess,
    Cancel,
    Command,
    Commit,
    Draft,
    Finish,
    GiveUp,
    StopReason,
    TaskId,
    Verify,
)
from specmesh.orchestrator.strategies.events import (
    Assessed,
    Capacity,
    Drafted,
    Event,
    Failed,
    Released,
    Verified,
)
from specmesh.serving.errors import (
    FailedPreconditionStatus,
    ResourceExhaustedStatus,
    ServiceError,
    UnavailableStatus,
    error_info,
    invalid_field,
    retry_after_s,
)
from specmesh.serving.metrics import TASK_FAILURES

log = logging.getLogger(__name__)

_failures = TASK_FAILURES.instrument()

COMPILED_BY_REPLICAS = "sampling.grammar"
"""The field that only a replica can check, with its own tokens."""

Answered = Drafted | Verified | Assessed | Released | Failed


class _Ended(NamedTuple):
    """Follows the last event of a task."""

    task: TaskId


Deliver = Callable[[Commit], StopReason | None]
"""Receives committed tokens; returns a reason if the answer must end with them."""


class Driver:
    """Runs one strategy for one request.

    Events reach the strategy one at a time, each after all commands from the previous one have been
    performed, and never from a cancelled task.
    """

    def __init__(
        self, strategy: Strategy, calls: Calls, stats: RequestStats, deliver: Deliver
    ) -> None:
        self._strategy = strategy
        self._calls = calls
        self._stats = stats
        self._deliver = deliver
        self._rounds = Rounds(calls.tokens)
        self._capacity = Capacity()
        self._now = clock(recorded=calls.tokens is not None)
        self._events: asyncio.Queue[tuple[Answered | InvalidField | _Ended | None, Moment]]
        self._events = asyncio.Queue()
        """Events with their moment of arrival; None if replicas or drafters may have changed."""
        self._handled = ("start", self._now())
        """The event that is being handled: its name and when it arrived."""
        self._tasks: dict[TaskId, asyncio.Task[None]] = {}
        self._cancellations: dict[TaskId, TaskCancellation] = {}
        """The cancellation of each task that may still have events."""
        self._errors: dict[TaskId, Exception] = {}
        """The error of each such task that has failed."""

    async def drive(self) -> StopReason:
        """Run to the end of the answer.

        Raises the error behind a ``GiveUp``, or ``InvalidField`` if a service refuses an option.
        """
        try:
            with self._calls.watched(self._mesh_changed):
                return await self._drive()
        finally:
            await self._end(list(self._tasks.values()))
            self._rounds.close()

    async def _drive(self) -> StopReason:
        self._capacity = self._calls.capacity()
        commands = self._strategy.start(self._capacity)
        while True:
            self._stats.explanation = self._strategy.explanation
            if reason := await self._perform(commands):
                return reason
            event = await self._next_event()
            self._stats.handled(event)
            commands = self._strategy.handle(event)

    def _on_event(self, event: Answered | InvalidField | _Ended | None) -> None:
        self._events.put_nowait((event, self._now()))

    def _mesh_changed(self) -> None:
        self._on_event(None)

    async def _perform(self, commands: Sequence[Command]) -> StopReason | None:
        """Send new calls first, since the next tokens wait for them; then end cancelled tasks;
        then deliver commits. Return the reason if that ends the answer."""
        cancelled = [command.task for command in commands if isinstance(command, Cancel)]
        with self._rounds.cancelling(len(cancelled)):
            self._drop(cancelled)
            num_under_way = len(self._tasks)
            for command in commands:
                self._launch(command)
            if len(self._tasks) > num_under_way:
                await on_the_wire()
            await self._end([self._tasks[task] for task in cancelled if task in self._tasks])
        for command in commands:
            match command:
                case Commit():
                    if reason := self._deliver(command):
                        return reason
                case Finish(reason=reason):
                    return reason
                case GiveUp(failed=task):
                    raise _for_client(self._errors[task])
        return None

    def _drop(self, tasks: Sequence[TaskId]) -> None:
        """Ignore further events of ``tasks``, and free their slots at replicas."""
        for task in tasks:
            if task in self._cancellations:
                self._cancellations[task].cancel()

    def _launch(self, command: Command) -> None:
        """Start the call that the command asks for, if any, and count the command."""
        match command:
            case Draft() | Verify() | Assess():
                self._call(command)
            case Cancel():
                self._stats.cancelled(command)
            case Commit():
                self._stats.committed(command)
                self._rounds.committed(command)
                self._calls.commit(command.token_ids)

    def _call(self, command: Draft | Verify | Assess) -> None:
        context = self._calls.command_context(
            self._rounds.context, Cause(*self._handled, self._now)
        )
        self._cancellations[command.task] = context.cancellation
        match command:
            case Draft():
                work = self._calls.draft(command, context, self._on_event)
            case Verify():
                self._stats.sent(command)
                work = self._verify(command, context)
            case Assess():
                work = self._calls.assess(command, context, self._on_event)
        self._tasks[command.task] = asyncio.create_task(self._guard(command.task, work))

    async def _verify(self, command: Verify, context: CommandContext) -> None:
        self._on_event(await self._calls.verify(command, context))

    async def _guard(self, task: TaskId, work: Coroutine[None, None, None]) -> None:
        """Turn errors that end a task into ``Failed``, except ``InvalidField`` and cancellation."""
        try:
            await work
        except InvalidField as error:
            self._on_event(error)
        except Exception as error:
            if not isinstance(error, grpc.aio.AioRpcError | ServiceError):
                log.exception("task failed unexpectedly")
            self._errors[task] = error
            self._on_event(Failed(task))
            _failures.add(1)
        finally:
            self._tasks.pop(task, None)
            self._on_event(_Ended(task))

    async def _end(self, running: list[asyncio.Task[None]]) -> None:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _next_event(self) -> Event:
        """Return the next event of a task that was not cancelled, or the mesh's new capacity."""
        while True:
            capacity = self._calls.capacity()
            if capacity is not self._capacity and capacity != self._capacity:
                self._capacity = capacity
                self._handled = ("capacity", self._now())
                return capacity
            event, arrived = await self._events.get()
            while isinstance(event, _Ended):
                self._forget(event.task)
                event, arrived = await self._events.get()
            if isinstance(event, InvalidField):
                raise event
            if event is not None and not self._cancellations[event.task].requested:
                self._handled = (type(event).__name__.lower(), arrived)
                return event

    def _forget(self, task: TaskId) -> None:
        """Keep nothing of a task without further events, since an answer may have any number."""
        del self._cancellations[task]
        self._errors.pop(task, None)


async def on_the_wire() -> None:
    """Return once newly started calls have been sent, if each found an open stream.

    Their tasks hand the request to gRPC within one step of the event loop, and gRPC sends it.
    """
    await asyncio.sleep(0)


def _for_client(error: Exception) -> Exception:
    """Return the error that the client gets for a failed call: clients don't know of replicas."""
    if not isinstance(error, grpc.aio.AioRpcError):
        return error
    details = error.details() or ""
    match fault_of(error):
        case CallFault.BUSY:
            retry_s = retry_after_s(error) or 1.0
            return ResourceExhaustedStatus("VERIFIERS_BUSY", details, retry_after_s=retry_s)
        case CallFault.TOO_SMALL:
            info = error_info(error)
            assert info is not None
            return FailedPreconditionStatus(info.reason, details, info.metadata)
        case CallFault.REFUSED:
            wrong = invalid_field(error)
            if wrong is not None and wrong.field.startswith(COMPILED_BY_REPLICAS):
                return wrong
            return error  # the request was checked before, so this is a bug of ours
    return UnavailableStatus("VERIFIER_LOST", f"no replica of the target answered: {details}")

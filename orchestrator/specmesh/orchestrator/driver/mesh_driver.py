"""The mesh driver: performs a strategy's commands over gRPC and feeds back events.

The loop is ``drive``, which makes no decisions. Cancelling a command cancels its call, which stops
the work at the replica.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import grpc
import grpc.aio

from specmesh.decoding.errors import InvalidField
from specmesh.orchestrator.driver.mailbox import Mailbox
from specmesh.orchestrator.driver.rounds import Rounds
from specmesh.orchestrator.driver.stats import RequestStats
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


class _Call(Protocol):
    """The call of a command that is under way."""

    def free(self) -> None:
        """Free its slots at replicas: ``cancel`` will follow."""

    def cancel(self) -> None:
        """End it; it brings no more events."""


class _Task(NamedTuple):
    """A call that is made by a task."""

    task: asyncio.Task[None]

    def free(self) -> None:
        pass

    def cancel(self) -> None:
        self.task.cancel()


class _Arrival(NamedTuple):
    """An event that waits to be handled."""

    event: Answered | InvalidField
    moment: Moment
    error: Exception | None
    """The error behind a ``Failed``."""


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
        self._arrivals: Mailbox[_Arrival] = Mailbox()
        """Events of tasks that were not cancelled; it is woken if the mesh may have changed."""
        self._mesh_changed = False
        self._handled = ("start", self._now())
        """The event that is being handled: its name and when it arrived."""
        self._error: Exception | None = None
        """The error behind that event."""
        self._running: dict[TaskId, _Call] = {}

    async def drive(self) -> StopReason:
        """Run to the end of the answer.

        Raises the error behind a ``GiveUp``, or ``InvalidField`` if a service refuses an option.
        """
        try:
            with self._calls.watched(self._watch):
                return await self._drive()
        finally:
            await _end(list(self._running.values()))
            self._rounds.close()

    async def _drive(self) -> StopReason:
        self._capacity = self._calls.capacity()
        now = asyncio.get_running_loop().time
        self._strategy.now = now()
        commands = self._strategy.start(self._capacity)
        while True:
            self._stats.explanation = self._strategy.explanation
            if reason := await self._perform(commands):
                return reason
            event = await self._next_event()
            self._stats.handled(event)
            self._strategy.now = now()
            commands = self._strategy.handle(event)

    async def _perform(self, commands: Sequence[Command]) -> StopReason | None:
        """Send new calls first, since the next tokens wait for them; then end cancelled tasks;
        then deliver commits. Return the reason if that ends the answer."""
        if not commands:
            return None
        cancelled = [command.task for command in commands if isinstance(command, Cancel)]
        if cancelled:
            with self._rounds.cancelling(len(cancelled)):
                dropped = self._drop(cancelled)
                self._launch_all(commands)
                await _end(dropped)
        else:
            self._launch_all(commands)
        for command in commands:
            match command:
                case Commit():
                    if reason := self._deliver(command):
                        return reason
                case Finish(reason=reason):
                    return reason
                case GiveUp():
                    assert self._error is not None  # it follows a Failed
                    raise _for_client(self._error)
        return None

    def _drop(self, tasks: Sequence[TaskId]) -> list[_Call]:
        """Ignore further events of ``tasks``, and free their slots at replicas; return their calls,
        which are to be ended."""
        dropped = [self._running.pop(task) for task in tasks if task in self._running]
        for call in dropped:
            call.free()
        for task in tasks:
            self._arrivals.drop(partial(_is_of, task))
        return dropped

    def _launch_all(self, commands: Sequence[Command]) -> None:
        for command in commands:
            self._launch(command)

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
        task = command.task
        match command:
            case Verify():
                self._stats.sent(command)
                verified = partial(self._verified, task)
                call: _Call = self._calls.verifications.begin(command, context, verified)
            case Draft():
                ended = partial(self._ended, task)
                call = self._calls.drafts.begin(command, context, self._brought, ended)
            case Assess():
                call = _Task(asyncio.create_task(self._assess(command, context)))
        self._running[task] = call

    async def _assess(self, command: Assess, context: CommandContext) -> None:
        error: Exception | None = None
        try:
            await self._calls.assess(command, context, self._brought)
        except Exception as raised:
            error = raised
        self._ended(command.task, error)

    def _verified(self, task: TaskId, outcome: Verified | Exception) -> None:
        """Pass on the outcome of a verification."""
        if isinstance(outcome, Verified):
            self._brought(outcome)
            self._ended(task, None)
        else:
            self._ended(task, outcome)

    def _brought(self, event: Answered) -> None:
        """Pass on what a call has brought, unless it was dropped."""
        if event.task in self._running:
            self._arrived(event)

    def _ended(self, task: TaskId, error: Exception | None) -> None:
        """Pass on the end of a call, unless it was dropped. An error becomes ``Failed``, except
        ``InvalidField``."""
        if self._running.pop(task, None) is None or error is None:
            return
        if isinstance(error, InvalidField):
            self._arrived(error)
            return
        if not isinstance(error, grpc.aio.AioRpcError | ServiceError):
            log.error("task failed unexpectedly", exc_info=error)
        _failures.add(1)
        self._arrived(Failed(task), error)

    def _arrived(self, event: Answered | InvalidField, error: Exception | None = None) -> None:
        self._arrivals.put(_Arrival(event, self._now(), error))

    async def _next_event(self) -> Event:
        """Return the next event of a task that was not cancelled, or before it the mesh's new
        capacity, which is looked at once for each event."""
        while True:
            while not (self._arrivals or self._mesh_changed):
                await self._arrivals.wait()
            self._mesh_changed = False
            capacity = self._calls.capacity()
            if capacity is not self._capacity and capacity != self._capacity:
                self._capacity = capacity
                self._handled = ("capacity", self._now())
                return capacity
            if self._arrivals:
                event, moment, self._error = self._arrivals.take()
                if isinstance(event, InvalidField):
                    raise event
                self._handled = (type(event).__name__.lower(), moment)
                return event

    def _watch(self) -> None:
        """Note that the ready replicas may have changed."""
        self._mesh_changed = True
        self._arrivals.wake()


async def _end(calls: Sequence[_Call]) -> None:
    for call in calls:
        call.cancel()
    if tasks := [call.task for call in calls if isinstance(call, _Task)]:
        await asyncio.gather(*tasks, return_exceptions=True)


def _is_of(task: TaskId, arrival: _Arrival) -> bool:
    return not isinstance(arrival.event, InvalidField) and arrival.event.task == task


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

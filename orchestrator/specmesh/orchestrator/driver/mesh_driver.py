"""The mesh driver: performs a strategy's commands over gRPC and feeds back events.

It makes no decisions: ``_step`` passes an event to the strategy and performs its commands, in the
step of the event loop that has read the event. Cancelling a command cancels its call, which stops
the work at the replica.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

import grpc
import grpc.aio

from specmesh.decoding.errors import InvalidField
from specmesh.orchestrator.driver.client_errors import for_client
from specmesh.orchestrator.driver.rounds import Rounds
from specmesh.orchestrator.driver.stats import RequestStats
from specmesh.orchestrator.replicas.calls.cause import Cause, clock
from specmesh.orchestrator.replicas.calls.command_context import CommandContext
from specmesh.orchestrator.replicas.calls.mesh_calls import Calls
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
from specmesh.serving.errors import DeadlineExceededStatus, ServiceError
from specmesh.serving.metrics import TASK_FAILURES

log = logging.getLogger(__name__)

_failures = TASK_FAILURES.instrument()

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


E = TypeVar("E", bound=Event)

Deliver = Callable[[Commit], StopReason | None]
"""Receives committed tokens; returns a reason if the answer must end with them."""


class Driver:
    """Runs one strategy for one request.

    Events reach the strategy one at a time, each after all commands from the previous one have been
    performed, and never from a cancelled call.
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
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._outcome: asyncio.Future[StopReason] = self._loop.create_future()
        self._looks = False
        """True if the mesh may have changed and will be looked at."""
        self._handled = ("start", self._now())
        """The event that is being handled: its name and when it arrived."""
        self._error: Exception | None = None
        """The error behind that event."""
        self._running: dict[TaskId, _Call] = {}

    async def drive(self) -> StopReason:
        """Run to the end of the answer.

        Raises the error behind a ``GiveUp``, ``InvalidField`` if a service refuses an option, or
        ``DeadlineExceededStatus``, also if the strategy waits for something that never comes.
        """
        timer = self._loop.call_at(self._calls.deadline, self._expire)
        try:
            with self._calls.watched(self._watch):
                self._capacity = self._calls.capacity()
                self._step(partial(self._ask, self._strategy.start, self._capacity))
                return await self._outcome
        finally:
            timer.cancel()
            if not self._outcome.cancel() and not self._outcome.cancelled():
                self._outcome.exception()  # is known, even if this was cancelled meanwhile
            for call in self._running.values():
                call.cancel()
            self._running.clear()
            self._rounds.close()

    def _expire(self) -> None:
        """End the answer: no time is left."""
        if not self._outcome.done():
            self._outcome.set_exception(
                DeadlineExceededStatus("DEADLINE", "the request's deadline has passed")
            )

    def _arrived(self, event: Answered, error: Exception | None = None) -> None:
        """Have the strategy respond to what a call has brought, unless the answer has ended."""
        self._error = error
        if not self._outcome.done():
            self._step(partial(self._respond, event))

    def _look(self) -> None:
        """Have the strategy respond to the mesh's capacity if that has changed."""
        self._looks = False
        if not self._outcome.done():
            self._step(self._adapt)

    def _adapt(self) -> Sequence[Command]:
        capacity = self._calls.capacity()
        if capacity is self._capacity or capacity == self._capacity:
            return ()
        self._capacity = capacity
        self._error = None
        return self._respond(capacity)

    def _respond(self, event: Event) -> Sequence[Command]:
        self._handled = (type(event).__name__.lower(), self._now())
        self._stats.handled(event)
        return self._ask(self._strategy.handle, event)

    def _ask(self, decide: Callable[[E], Sequence[Command]], event: E) -> Sequence[Command]:
        """Return what the strategy decides now."""
        self._strategy.now = self._loop.time()
        commands = decide(event)
        self._stats.explanation = self._strategy.explanation
        return commands

    def _step(self, decide: Callable[[], Sequence[Command]]) -> None:
        """Perform what the strategy decides; the answer may end with it."""
        try:
            reason = self._perform(decide())
        except Exception as error:
            self._outcome.set_exception(error)
        else:
            if reason is not None:
                self._outcome.set_result(reason)

    def _perform(self, commands: Sequence[Command]) -> StopReason | None:
        """Send new calls first, since the next tokens wait for them; then end cancelled calls;
        then deliver commits. Return the reason if that ends the answer."""
        if not commands:
            return None
        cancelled = [command.task for command in commands if isinstance(command, Cancel)]
        if cancelled:
            with self._rounds.cancelling(len(cancelled)):
                dropped = self._drop(cancelled)
                try:
                    self._launch_all(commands)
                finally:
                    for call in dropped:
                        call.cancel()
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
                    raise for_client(self._error)
        return None

    def _drop(self, tasks: Sequence[TaskId]) -> list[_Call]:
        """Ignore further events of ``tasks``, and free their slots at replicas; return their calls,
        which are to be ended."""
        dropped = [self._running.pop(task) for task in tasks if task in self._running]
        for call in dropped:
            call.free()
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

    def _command_context(self) -> CommandContext:
        """Return the context of a command that is given now."""
        cause = Cause(*self._handled, self._now)
        return self._calls.command_context(self._rounds.context, cause)

    def _call(self, command: Draft | Verify | Assess) -> None:
        context = self._command_context()
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

    def _verified(self, task: TaskId, outcome: Verified | Exception) -> CommandContext | None:
        """Handle the outcome of a verification, unless it was dropped; return the context of the
        next one of the same call, if that goes on."""
        if isinstance(outcome, Exception):
            self._ended(task, outcome)
            return None
        self._look()  # first, for it may lead to the cancellation of the call
        if task not in self._running:
            return None
        if not outcome.more:
            del self._running[task]
        self._arrived(outcome)
        if not outcome.more or task not in self._running or self._outcome.done():
            return None
        self._stats.goes_on(outcome)
        return self._command_context()

    def _brought(self, event: Answered) -> None:
        """Handle what a call has brought, unless it was dropped."""
        self._look()
        if event.task in self._running:
            self._arrived(event)

    def _ended(self, task: TaskId, error: Exception | None) -> None:
        """Handle the end of a call, unless it was dropped. An error becomes ``Failed``, except
        ``InvalidField``."""
        if error is not None:
            self._look()
        if self._running.pop(task, None) is None or error is None:
            return
        if isinstance(error, InvalidField):
            if not self._outcome.done():
                self._outcome.set_exception(error)
            return
        if not isinstance(error, grpc.aio.AioRpcError | ServiceError):
            log.error("task failed unexpectedly", exc_info=error)
        _failures.add(1)
        self._arrived(Failed(task), error)

    def _watch(self) -> None:
        """Look at the mesh soon: its ready replicas may have changed. Not now, because that may
        be while a call handles its failure."""
        if not self._looks:
            self._looks = True
            self._loop.call_soon(self._look, context=self._context)

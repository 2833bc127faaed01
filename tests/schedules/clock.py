"""An event loop without a wall clock, and processes that can be killed or frozen at any step.

Time jumps to the next timer as soon as nothing is left to do, so a minute of waiting costs
nothing, and what happens depends on nothing but the program: a schedule can be had again.

Every callback belongs to the process in whose context it was scheduled. Those of a dead process
never run (no clean-up either: that is what SIGKILL means), those of a frozen one wait for it.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

MAX_STEPS = 400_000
"""No schedule takes a tenth of it: past it something runs in circles."""

_process: ContextVar[Process | None] = ContextVar("_process", default=None)


class Stuck(Exception):
    """Nothing will ever happen again, or the same for ever."""


class Process:
    """What a SIGKILL, a SIGSTOP and a SIGCONT are for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen = False
        self.runs = True
        self.context = copy_context()
        self.context.run(_process.set, self)
        self.tasks: list[asyncio.Task[Any]] = []
        self.parked: list[Handle] = []

    def __repr__(self) -> str:
        return self.name

    def kill(self) -> None:
        """Nothing of it runs any more."""
        self.alive = self.frozen = self.runs = False
        self.parked.clear()

    def freeze(self) -> None:
        """Nothing of it runs until ``thaw``."""
        self.frozen, self.runs = True, False

    def thaw(self) -> None:
        """All that has come in the meantime happens now, in its order."""
        if self.frozen:
            self.frozen, self.runs = False, True
            parked, self.parked = self.parked, []
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            loop.take_up(parked)

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine in this process."""
        loop = asyncio.get_running_loop()
        return self.context.copy().run(loop.create_task, work)


class Handle(asyncio.Handle):
    """A callback to run; asyncio's own keeps more than is needed here."""

    __slots__ = ()

    def __init__(self, callback: Any, args: tuple[Any, ...], context: Context | None) -> None:
        self._callback: Any = callback
        self._args: Any = args
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._repr = None

    def cancel(self) -> None:
        """Run it never."""
        self._cancelled = True
        self._callback = self._args = None

    def run(self) -> None:
        """See ``asyncio.Handle``."""
        try:
            self._context.run(self._callback, *self._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            context = {"message": f"{self._callback} broke", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)


class Timer(Handle, asyncio.TimerHandle):
    """A callback to run at a time."""

    __slots__ = ()

    def __init__(
        self, when: float, callback: Any, args: tuple[Any, ...], context: Context | None
    ) -> None:
        super().__init__(callback, args, context)
        self._when = when


def current_process() -> Process | None:
    """The process whose callback is running."""
    return _process.get()


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._timers: list[tuple[float, int, Timer]] = []
        self._num_timers = 0
        self.num_steps = 0
        self.set_task_factory(_make_task)

    def time(self) -> float:
        """Virtual seconds since the schedule began."""
        return self._now

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """See ``asyncio.AbstractEventLoop``."""
        handle = Handle(callback, args, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> Timer:
        """See ``asyncio.AbstractEventLoop``."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> Timer:
        """See ``asyncio.AbstractEventLoop``; those of one moment run in the order given."""
        timer = Timer(when, callback, args, context)
        self._num_timers += 1
        heapq.heappush(self._timers, (when, self._num_timers, timer))
        return timer

    def take_up(self, handles: list[Handle]) -> None:
        """Run what a frozen process missed."""
        self._ready.extend(handles)

    def _run_once(self) -> None:
        ready = self._ready
        if not ready and not self._stopping:
            self._pass_time()
        num_steps = len(ready)
        self.num_steps += num_steps
        if self.num_steps > MAX_STEPS:
            raise Stuck(f"more than {MAX_STEPS} steps, at {self._now:.3f} s")
        for _ in range(num_steps):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(_process)
            if process is None or process.runs:
                handle.run()
            elif process.alive:
                process.parked.append(handle)

    def _pass_time(self) -> None:
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            raise Stuck(f"nothing is left that could happen, at {self._now:.3f} s")
        self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            timer = heapq.heappop(timers)[2]
            if not timer._cancelled:
                self._ready.append(timer)


def _make_task(
    loop: asyncio.AbstractEventLoop, work: Any, context: Context | None = None
) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, context=context)
    process = _process.get() if context is None else context.get(_process)
    if process is not None:
        process.tasks.append(task)
    return task

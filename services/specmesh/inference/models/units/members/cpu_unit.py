"""The engine's side of a unit made of CPU cores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.reduction import DupFd
from multiprocessing.util import Finalize

import torch
from torch import Tensor

from specmesh.inference.model import DeviceLost
from specmesh.inference.models.units.members.jobs import (
    CONTROL_BYTES,
    RESTING,
    RESULT,
    WORDS,
    Attend,
    Held,
    JobKind,
    Linear,
    ResultBuffers,
)
from specmesh.inference.models.units.members.memory import SharedMemory
from specmesh.inference.models.units.members.specs import UnitSpec
from specmesh.inference.models.units.members.worker import Line, work

SPINS = 3000
"""The number of polls for the end of a job before the thread sleeps, about 0.3 ms."""
LOOK_SECONDS = 0.05
"""The interval of checks that a slow unit is still alive."""
END_SECONDS = 2.0


class CpuUnit:
    """A ``Unit`` in a process of its own, which starts when this object is created."""

    attends = True

    def __init__(self, spec: UnitSpec, memory: SharedMemory) -> None:
        self.name = str(spec)
        self.times = 1
        """The number of times that the unit does each job: more than one simulates a slower unit,
        for experiments."""
        self._memory = memory
        control = memory.place(memory.zeros([CONTROL_BYTES], torch.uint8))
        self._control = memory.pages(control)
        self._output = self._log_sums = torch.empty(0)
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._begin, self._done = context.Semaphore(0), context.Semaphore(0)
        line = Line(DupFd(memory.file), control, self._begin, self._done, theirs)
        self._process = context.Process(
            target=work, args=(line, spec.numbers), name=self.name, daemon=True
        )
        self._process.start()
        theirs.close()
        # Runs before multiprocessing ends daemons with a SIGTERM, which units ignore.
        self._ending = Finalize(self, self._end, exitpriority=10)

    @property
    def pid(self) -> int | None:
        """The id of its process."""
        return self._process.pid

    def hold(self, held: Sequence[Held]) -> None:
        """Send ``held`` to the process."""
        for each in held:
            if isinstance(each, ResultBuffers):
                self._output = self._memory.look(each.output)
                self._log_sums = self._memory.look(each.log_sums)
        self._begin_job(JobKind.HOLD)
        with suppress(BrokenPipeError):  # ``finish`` raises a better error
            self._pipe.send(held)
        self.finish()

    def begin_nothing(self) -> None:
        """Begin a job without work."""
        self._begin_job(JobKind.NOTHING)

    def begin_linear(self, job: Linear) -> None:
        """Begin to compute columns of a layer."""
        self._begin_job(JobKind.LINEAR, self.times, *job, 0, 0)

    def begin_attend(self, job: Attend) -> None:
        """Begin to attend to a range of keys."""
        self._begin_job(JobKind.ATTEND, self.times, *job[:-1], scale=job.scale)

    def finish(self) -> float:
        """Wait for the job; return its seconds. Raises ``DeviceLost`` if the process has ended or
        failed."""
        acquire = self._done.acquire
        if not any(acquire(False) for _ in range(SPINS)):
            while not acquire(timeout=LOOK_SECONDS):
                if not self._process.is_alive():
                    code = self._process.exitcode
                    raise DeviceLost(f"unit {self.name} has ended, with status {code}")
        nanoseconds, failed = RESULT.unpack_from(self._control, WORDS.size)
        if failed:
            raise DeviceLost(f"unit {self.name} failed: {self._pipe.recv()}")
        return float(nanoseconds) * 1e-9

    def rest(self) -> None:
        """Let the process sleep."""
        self._control[RESTING] = 1

    def output(self, *shape: int) -> Tensor:
        """Return the results, as ``shape``."""
        return _first(self._output, shape)

    def log_sums(self, *shape: int) -> Tensor:
        """Return the logarithms of sums, as ``shape``."""
        return _first(self._log_sums, shape)

    def close(self) -> None:
        """End the process, within some seconds even if it hangs."""
        self._ending()

    def _begin_job(self, kind: JobKind, times: int = 1, *numbers: int, scale: float = 0.0) -> None:
        self._control[RESTING] = 0
        WORDS.pack_into(self._control, 0, kind, times, *(numbers or (0,) * 6), scale)
        self._begin.release()

    def _end(self) -> None:
        self._begin_job(JobKind.END)
        self._process.join(END_SECONDS)
        self._process.kill()
        self._process.join()


def _first(flat: Tensor, shape: tuple[int, ...]) -> Tensor:
    return flat[: math.prod(shape)].view(shape)

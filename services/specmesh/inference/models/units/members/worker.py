"""The process of a unit made of CPU cores: it waits for jobs and does them.

It is a process and not a thread, since Python runs one thread at a time, and switching takes longer
than many layers.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Sequence
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.synchronize import Semaphore
from typing import Any, NamedTuple

import torch
from torch import Tensor

from specmesh.inference.models.units.members.jobs import (
    RESTING,
    RESULT,
    WORDS,
    Attend,
    Held,
    JobKind,
    KVPlace,
    LayerPlaces,
    Linear,
    ResultBuffers,
    SharedBuffers,
)
from specmesh.inference.models.units.members.memory import Place, SharedMemory
from specmesh.inference.models.units.members.slices import Layers, attend, read_kv

SPINS = 50_000
"""The number of polls for the next job before a unit sleeps, about 10 ms, unless the forward pass
ends before: waking up takes longer than many layers."""


class Line(NamedTuple):
    """The connection of a unit's process with the engine's."""

    file: Any
    """A ``DupFd`` for the memory's file."""
    control: Place
    begin: Semaphore
    done: Semaphore
    pipe: Connection


def work(line: Line, cores: Sequence[int]) -> None:
    """Do jobs on ``cores`` until told to end."""
    os.sched_setaffinity(0, cores)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the engine needs its units while it drains
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(len(cores))
    _UnitWorker(line).live()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


class _UnitWorker:
    def __init__(self, line: Line) -> None:
        self._line = line
        self._memory = SharedMemory(line.file.detach())
        self._control = self._memory.pages(line.control)
        self._layers = Layers()
        self._stores: list[Tensor] = []
        self._inputs = self._slots = self._output = self._log_sums = torch.empty(0)

    @torch.inference_mode()
    def live(self) -> None:
        done = self._line.done
        while True:
            self._await_job()
            kind, times, *numbers, scale = WORDS.unpack_from(self._control)
            if kind == JobKind.END:
                return
            began = time.perf_counter_ns()
            failed = False
            try:
                for _ in range(times):
                    self._do(kind, numbers, scale)
            except Exception:
                failed = True
                self._line.pipe.send(traceback.format_exc())
            taken = time.perf_counter_ns() - began
            RESULT.pack_into(self._control, WORDS.size, taken, failed)
            done.release()

    def _await_job(self) -> None:
        acquire, control = self._line.begin.acquire, self._control
        for _ in range(SPINS):
            if acquire(False):
                return
            if control[RESTING]:
                break
        acquire()

    def _do(self, kind: int, numbers: Sequence[int], scale: float) -> None:
        if kind == JobKind.LINEAR:
            self._linear(Linear(*numbers[:4]))
        elif kind == JobKind.ATTEND:
            store, layer, rows, first, end, run = numbers
            self._attend(Attend(store, layer, rows, first, end, run, scale))
        elif kind == JobKind.HOLD:
            for each in self._line.pipe.recv():
                self._hold(each)

    def _linear(self, job: Linear) -> None:
        features = self._layers.features(job.layer)
        inputs = self._inputs[: job.tokens * features].view(job.tokens, features)
        part = self._layers.part(job.layer, job.first, job.end, inputs)
        self._output[: part.numel()].view(part.shape).copy_(part)

    def _attend(self, job: Attend) -> None:
        kv = self._stores[job.store]
        shape = (1, kv.shape[2], job.rows, kv.shape[3])
        query = self._inputs[: job.rows * kv.shape[2] * kv.shape[3]].view(shape)
        keys, values = read_kv(kv, job.layer, job.first, job.end, job.run, self._slots)
        attended, log_sums = attend(query, keys, values, job.scale)
        self._output[: attended.numel()].view(shape).copy_(attended)
        self._log_sums[: log_sums.numel()].view(log_sums.shape).copy_(log_sums)

    def _hold(self, held: Held) -> None:
        look = self._memory.look
        if isinstance(held, LayerPlaces):
            self._layers.add(look(held.weight), None if held.bias is None else look(held.bias))
        elif isinstance(held, KVPlace):
            self._stores.append(look(held.kv))
        elif isinstance(held, SharedBuffers):
            self._inputs, self._slots = look(held.inputs), look(held.slots)
        else:
            assert isinstance(held, ResultBuffers)
            self._output, self._log_sums = look(held.output), look(held.log_sums)

"""The units that share a forward pass: a crew gives each unit its part and combines the results.

The first unit is the engine's own thread. It runs the model's code; at a linear layer or at
attention, the other units get their parts while the first unit computes its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.units.members.cpu_unit import CpuUnit
from specmesh.inference.models.units.members.cuda_unit import CudaUnit
from specmesh.inference.models.units.members.jobs import (
    Attend,
    Held,
    KVPlace,
    LayerPlaces,
    Linear,
    ResultBuffers,
    SharedBuffers,
)
from specmesh.inference.models.units.members.memory import SharedMemory
from specmesh.inference.models.units.members.slices import Layers
from specmesh.inference.models.units.members.specs import UnitSpec
from specmesh.inference.models.units.members.unit import Unit
from specmesh.inference.models.units.plans.planner import ATTENTION, FixedPlan, Plan, Work
from specmesh.inference.models.units.plans.shares import Shares, even, ranges

T = TypeVar("T")

MAX_TOKENS = 512
"""The rows that shared activations have room for; more rows go through a layer in pieces."""


class _Part(NamedTuple):
    """Another unit's part of a layer, and the place of its results."""

    number: int
    unit: Unit
    job: Linear
    results: Tensor


_Busy = tuple[int, Unit]
"""The number of a busy unit, and the unit."""


class _Division(NamedTuple):
    """The division of a layer for a number of tokens: the place of the inputs, the first unit's
    columns."""

    inputs: Tensor
    own_columns: int
    parts: Sequence[_Part]
    busy: Sequence[_Busy]
    expected_s: Sequence[float]


class Crew:
    """Processing units that compute one model; used only by the thread that creates it.

    The thread is pinned to the first unit's cores until the crew is closed. Methods that compute
    raise ``DeviceLost`` if a unit is lost.
    """

    def __init__(self, specs: Sequence[UnitSpec]) -> None:
        """Start the units. Raises ``ModelNotLoadable`` if this process can't have them."""
        self.cores = _check_present(specs)
        self.names = tuple(map(str, specs))
        self.memory = SharedMemory()
        self._threads = torch.get_num_threads()
        self.units = [_start(spec, self.memory) for spec in specs[1:]]
        """All units but the first, which is this thread."""
        os.sched_setaffinity(0, specs[0].numbers)
        torch.set_num_threads(len(specs[0].numbers))
        self._layers = Layers()
        self._stores: dict[int, int] = {}
        self.works: dict[Work, list[int]] = {}
        """The numbers of layers, by their size."""
        self.context = 0
        """The longest sequence whose attention can be divided, in tokens."""
        self._inputs = self._slots = torch.empty(0)
        nothing = [0.0] * len(specs)
        self.linear_s = [*nothing]
        """The seconds that each unit took for its parts of layers since ``adapt``."""
        self.attention_s = [*nothing]
        """The seconds that each unit took for its parts of attention since ``adapt``."""
        self._expected_s = [*nothing]
        self._divisions: dict[tuple[int, int], _Division] = {}
        self.plan: Plan = FixedPlan(even(len(specs)))
        """The plan that divides work; ``use`` changes it."""

    def use(self, plan: Plan) -> None:
        """Divide work by ``plan`` from now on."""
        self.plan = plan
        self._divisions.clear()

    def adapt(self) -> None:
        """Let units rest after a forward pass, and divide work anew if the plan finds that their
        speeds have changed."""
        for unit in self.units:
            unit.rest()
        if self.plan.observe(self.linear_s, self._expected_s):
            self._divisions.clear()
        for seconds in (self.linear_s, self.attention_s, self._expected_s):
            seconds[:] = [0.0] * len(seconds)

    def share_buffers(self, heads: int, context: int, dtype: torch.dtype) -> None:
        """Allocate the buffers for activations and results, once layers are known.

        ``heads`` is the number of query heads, ``context`` the longest sequence that units attend
        to, in tokens.
        """
        zeros, place = self.memory.zeros, self.memory.place
        self.context = context
        self._inputs = zeros([MAX_TOKENS * max(work.features for work in self.works)], dtype)
        self._slots = zeros([context], torch.int64)
        shared = SharedBuffers(place(self._inputs), place(self._slots))
        longest = max(max(work) for work in self.works)
        for unit in self.units:
            output = zeros([MAX_TOKENS * longest], dtype)
            log_sums = zeros([MAX_TOKENS * heads], torch.float32)
            unit.hold([shared, ResultBuffers(place(output), place(log_sums))])

    def share_layers(self, layers: Sequence[tuple[Tensor, Tensor | None]]) -> Sequence[int]:
        """Give all units ``layers``, whose weights and biases lie in the crew's memory; return
        their numbers."""
        place = self.memory.place
        places: list[Held] = [
            LayerPlaces(place(weight), None if bias is None else place(bias))
            for weight, bias in layers
        ]
        for unit in self.units:
            unit.hold(places)
        numbers = [self._layers.add(weight, bias) for weight, bias in layers]
        for number in numbers:
            work = Work(self._layers.features(number), self._layers.columns(number))
            self.works.setdefault(work, []).append(number)
        return numbers

    def share_kv(self, kv: Tensor) -> None:
        """Let units read the KV store ``kv``, which lies in the crew's memory."""
        self._stores[kv.data_ptr()] = len(self._stores)
        for unit in self.units:
            if unit.attends:
                unit.hold([KVPlace(self.memory.place(kv))])

    def store_number(self, kv: Tensor) -> int:
        """Return the number by which units know ``kv``."""
        return self._stores[kv.data_ptr()]

    def linear(self, layer: int, inputs: Tensor) -> Tensor:
        """Compute layer number ``layer`` of ``inputs`` ``[tokens, features]``; return ``[tokens,
        columns]``."""
        tokens = len(inputs)
        if tokens > MAX_TOKENS:
            return torch.cat([self.linear(layer, part) for part in torch.split(inputs, MAX_TOKENS)])
        division = self._divisions.get((layer, tokens)) or self._divide(layer, tokens)
        if not division.parts or not tokens:
            return self._layers.part(layer, 0, self._layers.columns(layer), inputs)
        division.inputs.copy_(inputs)
        for part in division.parts:
            part.unit.begin_linear(part.job)
        own = self._finish(
            division.busy,
            lambda: self._layers.part(layer, 0, division.own_columns, inputs),
            self.linear_s,
        )
        for number, expected_s in enumerate(division.expected_s):
            self._expected_s[number] += expected_s
        return torch.cat([own, *(part.results for part in division.parts)], 1)

    def key_ranges(self, keys: int, width: int, length: int) -> Sequence[range] | None:
        """Return the range of ``keys`` committed keys that each unit attends to, for ``width`` new
        tokens of a sequence of ``length``; None if the first unit would get all keys."""
        if not keys or width > MAX_TOKENS or length > self.context:
            return None
        able = [True, *(unit.attends for unit in self.units)]
        planned = self.plan.shares(ATTENTION, keys)
        usable = [share if can else 0.0 for share, can in zip(planned, able, strict=True)]
        if sum(usable[1:]) == 0:
            return None
        return ranges(tuple(share / sum(usable) for share in usable), keys)

    def attend(
        self,
        query: Tensor,
        slots: Tensor | None,
        jobs: Sequence[Attend],
        own: Callable[[], list[tuple[Tensor, Tensor]]],
    ) -> list[tuple[Tensor, Tensor]]:
        """Return ``own()``, the first unit's parts, and the other units' results of their ``jobs``.

        ``query`` is ``[1, kv_heads, rows, head_dim]``; ``slots`` are those of the sequence, or None
        if they are consecutive.
        """
        self._inputs[: query.numel()].view(query.shape).copy_(query)
        if slots is not None:
            self._slots[: len(slots)] = slots
        busy = [
            (number, self.units[number - 1])
            for number, job in enumerate(jobs)
            if number and job.end > job.first
        ]
        for number, unit in busy:
            unit.begin_attend(jobs[number])
        parts = self._finish(busy, own, self.attention_s)
        return [
            *parts,
            *((unit.output(*query.shape), unit.log_sums(*query.shape[:3])) for _, unit in busy),
        ]

    def ping(self, number: int) -> float:
        """Return the seconds until unit ``number`` (from 1) has answered a job without work."""
        unit = self.units[number - 1]
        began = time.perf_counter()
        unit.begin_nothing()
        unit.finish()
        return time.perf_counter() - began

    def forget(self) -> None:
        """Drop the layers that this thread has packed; it packs them again as needed."""
        self._layers.forget()

    def close(self) -> None:
        """End the other units, and restore the thread's cores."""
        for unit in self.units:
            unit.close()
        self.memory.close()
        os.sched_setaffinity(0, self.cores)
        torch.set_num_threads(self._threads)

    def _divide(self, layer: int, tokens: int) -> _Division:
        features, columns = self._layers.features(layer), self._layers.columns(layer)
        inputs = self._inputs[: tokens * features].view(tokens, features)
        work = Work(features, columns)
        shares: Shares = self.plan.shares(work, tokens)
        own, *others = ranges(shares, columns, self._layers.granule(layer, tokens))
        parts = [
            _Part(
                number,
                unit,
                Linear(layer, tokens, run.start, run.stop),
                unit.output(tokens, len(run)),
            )
            for number, (unit, run) in enumerate(zip(self.units, others, strict=True), start=1)
            if run
        ]
        given = tuple(len(run) / columns for run in (own, *others))
        busy = [(part.number, part.unit) for part in parts]
        expected_s = self.plan.expected_s(work, tokens, given)
        division = _Division(inputs, len(own), parts, busy, expected_s)
        self._divisions[layer, tokens] = division
        return division

    def _finish(self, busy: Sequence[_Busy], own: Callable[[], T], taken_s: list[float]) -> T:
        """Return ``own()`` once all ``busy`` units have finished, too; add the seconds of each to
        ``taken_s``."""
        began = time.perf_counter()
        try:
            done = own()
        finally:
            taken_s[0] += time.perf_counter() - began
            # Even if ``own`` failed, as for lack of memory: no unit may be busy at the next job.
            for number, unit in busy:
                taken_s[number] += unit.finish()
        return done


def _check_present(specs: Sequence[UnitSpec]) -> frozenset[int]:
    """Return the cores that this thread may use. Raises ``ModelNotLoadable`` if a unit is
    missing."""
    cores = frozenset(os.sched_getaffinity(0))
    for spec in specs:
        if spec.kind == "cpu" and not cores.issuperset(spec.numbers):
            usable = ", ".join(map(str, sorted(cores)))
            raise ModelNotLoadable(
                f"--units: {spec} is not among the cores of this process: {usable}"
            )
        if spec.kind == "cuda" and spec.numbers[0] >= torch.cuda.device_count():
            raise ModelNotLoadable(
                f"--units: there is no {spec}: torch sees {torch.cuda.device_count()} GPUs"
            )
    return cores


def _start(spec: UnitSpec, memory: SharedMemory) -> Unit:
    return CudaUnit(spec, memory) if spec.kind == "cuda" else CpuUnit(spec, memory)

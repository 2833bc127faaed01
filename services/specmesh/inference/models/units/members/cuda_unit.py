"""A unit that is a GPU: its kernels run on a stream, concurrently with the engine's thread.

All weights are copied to it once, so a change of shares moves nothing. It reads activations and
writes results in the shared memory, which is registered for that. It takes no part in attention,
since all KV would have to be written twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from specmesh.inference.models.units.members.jobs import (
    Attend,
    Held,
    LayerPlaces,
    Linear,
    ResultBuffers,
    SharedBuffers,
)
from specmesh.inference.models.units.members.memory import Place, SharedMemory
from specmesh.inference.models.units.members.slices import Layers
from specmesh.inference.models.units.members.specs import UnitSpec


class CudaUnit:
    """A ``Unit`` on one GPU. A lost GPU raises ``torch.AcceleratorError``, as it does elsewhere."""

    attends = False

    def __init__(self, spec: UnitSpec, memory: SharedMemory) -> None:
        self.name = str(spec)
        self._device = torch.device("cuda", spec.numbers[0])
        self._memory = memory
        self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        self._began, self._ended = _event(), _event()
        self._layers = Layers()
        self._inputs = self._output = torch.empty(0)
        self._registered: list[int] = []

    def hold(self, held: Sequence[Held]) -> None:
        """Copy layers to the GPU, and let it read and write buffers in place."""
        look = self._memory.look
        for each in held:
            if isinstance(each, LayerPlaces):
                bias = None if each.bias is None else look(each.bias).to(self._device)
                self._layers.add(look(each.weight).to(self._device), bias)
            elif isinstance(each, SharedBuffers):
                self._inputs = self._register(each.inputs)
            elif isinstance(each, ResultBuffers):
                self._output = self._register(each.output)

    def begin_nothing(self) -> None:
        """Begin a job without work."""
        with torch.cuda.stream(self._stream):
            self._began.record()
            self._ended.record()

    def begin_linear(self, job: Linear) -> None:
        """Queue the copy of the inputs, the multiplication, and the copy of its results."""
        features, columns = self._layers.features(job.layer), job.end - job.first
        inputs = self._inputs[: job.tokens * features].view(job.tokens, features)
        with torch.cuda.stream(self._stream):
            self._began.record()
            there = inputs.to(self._device, non_blocking=True)
            part = self._layers.part(job.layer, job.first, job.end, there)
            self.output(job.tokens, columns).copy_(part, non_blocking=True)
            self._ended.record()

    def begin_attend(self, job: Attend) -> None:
        """Raise ``AssertionError``: never called, since ``attends`` is False."""
        raise AssertionError(f"{self.name} was given {job}")

    def finish(self) -> float:
        """Wait for the queued job; return its seconds on the GPU."""
        self._ended.synchronize()
        return float(self._began.elapsed_time(self._ended)) * 1e-3

    def rest(self) -> None:
        """Do nothing: no thread is waiting."""

    def output(self, *shape: int) -> Tensor:
        """Return the results, as ``shape``."""
        return self._output[: torch.Size(shape).numel()].view(shape)

    def log_sums(self, *shape: int) -> Tensor:
        """Raise ``AssertionError``: the unit takes no part in attention."""
        raise AssertionError(f"{self.name} was asked for {shape}")

    def close(self) -> None:
        """Unregister the buffers."""
        for address in self._registered:
            _runtime().cudaHostUnregister(address)
        self._registered.clear()

    def _register(self, place: Place) -> Tensor:
        """Return the tensor at ``place``, locked in memory, so that the GPU copies directly from
        and to it."""
        tensor = self._memory.look(place)
        status = _runtime().cudaHostRegister(tensor.data_ptr(), place.num_bytes, 0)
        torch.cuda.check_error(status)
        self._registered.append(tensor.data_ptr())
        return tensor


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _runtime() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]

"""Memory that units in several processes share: weights, KV, activations and results.

An anonymous file, so that nothing is left behind and no limit of ``/dev/shm`` applies, which in
containers is 64 MiB. Each tensor has pages of its own, which take memory once they are used.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lies in the shared memory; what another process needs to see it."""

    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        """Without what the last page has left."""
        return math.prod(self.shape) * self.dtype.itemsize


class SharedMemory:
    """One end of the memory: the process that makes tensors in it, or one that looks at them."""

    def __init__(self, file: int | None = None) -> None:
        """``file`` is the descriptor that the other end has given; None makes new memory."""
        self.file = os.memfd_create("specmesh-units") if file is None else file
        self.size = 0
        """Bytes of all tensors made, in whole pages."""
        self._places: dict[int, Place] = {}

    def zeros(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A new tensor, seen by all; one without elements isn't possible."""
        place = Place(self.size, tuple(shape), dtype)
        self.size += -(-place.num_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        os.ftruncate(self.file, self.size)
        tensor = self.look(place)
        self._places[tensor.data_ptr()] = place
        return tensor

    def copy(self, tensor: Tensor) -> Tensor:
        """A new tensor with the values of ``tensor``."""
        return self.zeros(tensor.shape, tensor.dtype).copy_(tensor)

    def place(self, tensor: Tensor) -> Place:
        """Where ``tensor`` is, which this end has made."""
        return self._places[tensor.data_ptr()]

    def close(self) -> None:
        """Make and look at no more tensors; those there are stay."""
        os.close(self.file)

    def look(self, place: Place) -> Tensor:
        """The tensor at ``place``."""
        return torch.frombuffer(self.pages(place), dtype=place.dtype).view(place.shape)

    def pages(self, place: Place) -> mmap.mmap:
        """The bytes at ``place``."""
        return mmap.mmap(self.file, place.num_bytes, offset=place.offset)

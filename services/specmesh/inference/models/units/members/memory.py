"""Memory that units in several processes share: weights, KV, activations and results.

It is an anonymous file, so nothing is left behind and the limit of ``/dev/shm`` (64 MiB in
containers) does not apply. Each tensor has pages of its own, which take memory once they are used.
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
    """The place of a tensor in the shared memory: all that another process needs to map it."""

    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        """The bytes of the tensor, without the unused rest of the last page."""
        return math.prod(self.shape) * self.dtype.itemsize


class SharedMemory:
    """One end of the memory: the process that creates tensors in it, or one that maps them."""

    def __init__(self, file: int | None = None) -> None:
        """Open ``file``, the descriptor from the other end; None creates new memory."""
        self.file = os.memfd_create("specmesh-units") if file is None else file
        self.size = 0
        """Bytes of all tensors made, in whole pages."""
        self._places: dict[int, Place] = {}

    def zeros(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return a new shared tensor, which must have at least one element."""
        place = Place(self.size, tuple(shape), dtype)
        self.size += -(-place.num_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        os.ftruncate(self.file, self.size)
        tensor = self.look(place)
        self._places[tensor.data_ptr()] = place
        return tensor

    def copy(self, tensor: Tensor) -> Tensor:
        """Return a new tensor with the values of ``tensor``."""
        return self.zeros(tensor.shape, tensor.dtype).copy_(tensor)

    def place(self, tensor: Tensor) -> Place:
        """Return the place of ``tensor``, which this end has created."""
        return self._places[tensor.data_ptr()]

    def close(self) -> None:
        """Stop creating and mapping tensors; existing ones stay."""
        os.close(self.file)

    def look(self, place: Place) -> Tensor:
        """Return the tensor at ``place``."""
        return torch.frombuffer(self.pages(place), dtype=place.dtype).view(place.shape)

    def pages(self, place: Place) -> mmap.mmap:
        """Return the bytes at ``place``."""
        return mmap.mmap(self.file, place.num_bytes, offset=place.offset)

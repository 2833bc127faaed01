"""The memory of every process of a mesh over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Memory of one process, in bytes."""

    resident: int
    private: int
    """Memory that would be freed if it ended, so excluding pages shared with others, such as
    libraries'."""


@dataclass(frozen=True, slots=True)
class MemorySample:
    """The memory of every process, by name, after ``num_requests`` and ``seconds``."""

    num_requests: int
    seconds: float
    held: Mapping[str, ProcessMemory]


class SampleLog:
    """A log of ``size`` samples in memory allocated up front: this process is measured, too, and
    would grow by 50 bytes per request if it kept objects."""

    def __init__(self, names: Sequence[str], size: int) -> None:
        self._names = tuple(names)
        self._rows = np.full((size, 2 + 2 * len(names)), np.nan)
        self._num_samples = 0

    def append(self, sample: MemorySample) -> None:
        """Keep one more sample. Raises IndexError after ``size`` of them."""
        held = [sample.held[name] for name in self._names]
        memory = (size for each in held for size in (each.resident, each.private))
        self._rows[self._num_samples] = (sample.num_requests, sample.seconds, *memory)
        self._num_samples += 1

    def samples(self) -> list[MemorySample]:
        """Return all samples in order."""
        return [
            MemorySample(
                int(number),
                seconds,
                {
                    name: ProcessMemory(int(resident), int(private))
                    for name, resident, private in zip(
                        self._names, memory[::2], memory[1::2], strict=True
                    )
                },
            )
            for number, seconds, *memory in self._rows[: self._num_samples].tolist()
        ]

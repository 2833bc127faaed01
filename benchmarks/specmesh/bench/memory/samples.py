"""What every process of a mesh held at one moment after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Memory of one process, in bytes."""

    resident: int
    private: int
    """What would be freed if it ended: pages shared with others, as libraries' are, don't count."""


@dataclass(frozen=True, slots=True)
class MemorySample:
    """The memory of every process, by name, after so many requests and seconds."""

    num_requests: int
    seconds: float
    held: Mapping[str, ProcessMemory]


class SampleLog:
    """Keeps ``size`` samples in memory that it takes at once: this process is measured, too, and
    would grow by 50 bytes a request if it kept objects."""

    def __init__(self, names: Sequence[str], size: int) -> None:
        self._names = tuple(names)
        self._rows = np.full((size, 2 + 2 * len(names)), np.nan)
        self._num_samples = 0

    def append(self, sample: MemorySample) -> None:
        """Keep one more. Raises IndexError after ``size`` of them."""
        held = [sample.held[name] for name in self._names]
        memory = (size for each in held for size in (each.resident, each.private))
        self._rows[self._num_samples] = (sample.num_requests, sample.seconds, *memory)
        self._num_samples += 1

    def samples(self) -> list[MemorySample]:
        """All of them, in their order."""
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

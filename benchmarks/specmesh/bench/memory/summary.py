"""The growth of each process with the requests it answers, once it is warm.

Caches fill and allocators find their size in the first half of a run; only the second counts.
Memory fluctuates and each sample depends on the previous one, so a line fitted through samples
would look far too certain. The second half is cut into blocks much longer than that dependence, and
the line is fitted through the medians of the blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, linear_regression, median

from specmesh.bench.memory.samples import MemorySample, ProcessMemory

NUM_BLOCKS = 10
_T = 2.306
"""The 97.5 % point of Student's t with ``NUM_BLOCKS - 2`` degrees of freedom."""
FLAT_BYTES = 50.0
"""Growth per request that counts as none: 1 GB in 20 days at a million requests a day."""


@dataclass(frozen=True, slots=True)
class MemoryGrowth:
    """The growth of a process's private memory over the second half of a run, in bytes per
    request."""

    mean: float
    low: float
    high: float
    """``low`` to ``high`` is the 95 % confidence interval."""

    @property
    def verdict(self) -> str:
        """Return whether it grows, as far as the run can tell."""
        if self.high <= FLAT_BYTES:
            return "flat"
        return "grows" if self.low > 0 else "unclear"


@dataclass(frozen=True, slots=True)
class ProcessSummary:
    """One process over a run."""

    name: str
    at_start: ProcessMemory
    half_way: ProcessMemory
    at_end: ProcessMemory
    max_resident: int
    growth: MemoryGrowth


def summarise(samples: Sequence[MemorySample]) -> list[ProcessSummary]:
    """Summarise all processes; at least ``2 * NUM_BLOCKS`` samples are needed."""
    return [_process(name, samples) for name in samples[0].held]


def _process(name: str, samples: Sequence[MemorySample]) -> ProcessSummary:
    half = samples[len(samples) // 2 :]
    return ProcessSummary(
        name=name,
        at_start=samples[0].held[name],
        half_way=half[0].held[name],
        at_end=samples[-1].held[name],
        max_resident=max(sample.held[name].resident for sample in samples),
        growth=growth([(each.num_requests, each.held[name].private) for each in half]),
    )


def growth(points: Sequence[tuple[int, int]]) -> MemoryGrowth:
    """Return the growth from points of (number of requests answered, bytes held)."""
    blocks = [
        points[len(points) * n // NUM_BLOCKS : len(points) * (n + 1) // NUM_BLOCKS]
        for n in range(NUM_BLOCKS)
    ]
    requests = [fmean(number for number, _ in block) for block in blocks]
    held = [median(held for _, held in block) for block in blocks]
    slope, start = linear_regression(requests, held)
    residuals = (h - (start + slope * n) for n, h in zip(requests, held, strict=True))
    middle = fmean(requests)
    spread = sum((n - middle) ** 2 for n in requests)
    error = math.sqrt(sum(r**2 for r in residuals) / (NUM_BLOCKS - 2) / spread)
    return MemoryGrowth(slope, slope - _T * error, slope + _T * error)

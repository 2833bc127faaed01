"""What every unit other than the first can do: a slice of a layer, while the others do theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from specmesh.inference.models.units.jobs import Attend, Held, Linear


class Unit(Protocol):
    """A processing unit; used by one thread, one job at a time.

    Each of its methods raises ``DeviceLost`` if it can do nothing any more.
    """

    name: str

    attends: bool
    """Whether it takes part in attention: only a unit to which the KV is at hand can."""

    def hold(self, held: Sequence[Held]) -> None:
        """Take more layers, buffers or KV; they are numbered in the order they come."""
        ...

    def begin_nothing(self) -> None:
        """Begin a job without work, whose time is that of being told."""
        ...

    def begin_linear(self, job: Linear) -> None:
        """Begin to compute ``job`` of the shared inputs; returns at once."""
        ...

    def begin_attend(self, job: Attend) -> None:
        """Begin to compute ``job`` for the queries in the shared inputs; returns at once."""
        ...

    def finish(self) -> float:
        """Wait for the job that was begun; returns the seconds it took."""
        ...

    def rest(self) -> None:
        """Expect no job soon: the forward is over."""
        ...

    def output(self, *shape: int) -> Tensor:
        """The finished job's results, which the next job overwrites."""
        ...

    def log_sums(self, *shape: int) -> Tensor:
        """The finished attention's logarithms of sums, likewise."""
        ...

    def close(self) -> None:
        """End it; does nothing for one that has ended."""
        ...

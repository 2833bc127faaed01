"""The interface of every unit except the first: it computes its slice of a layer while the others
compute theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from specmesh.inference.models.units.members.jobs import Attend, Held, Linear


class Unit(Protocol):
    """A processing unit, used by one thread for one job at a time.

    Every method raises ``DeviceLost`` if the unit can no longer work.
    """

    name: str

    attends: bool
    """True if it takes part in attention, which only a unit with access to the KV can."""

    def hold(self, held: Sequence[Held]) -> None:
        """Take more layers, buffers or KV; they are numbered in order of arrival."""
        ...

    def begin_nothing(self) -> None:
        """Begin a job without work, whose time is the overhead of any job."""
        ...

    def begin_linear(self, job: Linear) -> None:
        """Begin to compute ``job`` for the shared inputs; return immediately."""
        ...

    def begin_attend(self, job: Attend) -> None:
        """Begin to compute ``job`` for the queries in the shared inputs; return immediately."""
        ...

    def finish(self) -> float:
        """Wait for the running job; return the seconds it took."""
        ...

    def rest(self) -> None:
        """Let the unit sleep: the forward pass is over."""
        ...

    def output(self, *shape: int) -> Tensor:
        """Return the finished job's results, which the next job overwrites."""
        ...

    def log_sums(self, *shape: int) -> Tensor:
        """Return the finished attention's logarithms of sums, which the next job overwrites."""
        ...

    def close(self) -> None:
        """End the unit; do nothing if it has already ended."""
        ...

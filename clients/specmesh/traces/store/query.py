"""Which traces to list."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from specmesh.traces.summary import Outcome


class Order(StrEnum):
    """What comes first."""

    NEWEST = "newest"
    SLOWEST = "slowest"


_ORDERS = {Order.NEWEST: "start_ns DESC", Order.SLOWEST: "duration_ms DESC"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a trace must be to be listed; None: anything."""

    min_ms: float | None = None
    outcome: Outcome | None = None
    strategy: str | None = None
    acceptance_below: float | None = None
    """From 0 to 1."""
    session: str | None = None
    node: str | None = None
    since_s: float | None = None
    """The root began after that; seconds since 1970."""
    incomplete: bool = False
    """Only those that have lost spans."""
    begun: bool = False
    """Only answers that began: no request that was refused, and no list of models."""
    internal: bool = False
    """Also what the mesh asks itself outside any answer, such as which model a replica serves."""
    order: Order = Order.NEWEST
    limit: int = 20

    def sql(self) -> tuple[str, list[object]]:
        """What follows ``SELECT ... FROM traces``, and its parameters."""
        clauses = dict(self._clauses())
        where = f" WHERE {' AND '.join(clauses)}" if clauses else ""
        parameters = [value for value in clauses.values() if value is not None]
        return f"{where} ORDER BY {_ORDERS[self.order]} LIMIT ?", [*parameters, self.limit]

    def _clauses(self) -> Iterator[tuple[str, object]]:
        wanted: dict[str, object] = {
            "duration_ms >= ?": self.min_ms,
            "outcome = ?": self.outcome,
            "strategy = ?": self.strategy,
            "acceptance < ?": self.acceptance_below,
            "session = ?": self.session,
            "instr(nodes, ?)": None if self.node is None else f"\n{self.node}\n",
            "start_ns >= ?": None if self.since_s is None else int(self.since_s * 1e9),
        }
        yield from ((clause, value) for clause, value in wanted.items() if value is not None)
        if self.incomplete:
            yield "num_missing > 0", None
        if self.begun:
            yield "session != ''", None
        if not self.internal:
            yield "name NOT LIKE 'specmesh.mesh.%'", None

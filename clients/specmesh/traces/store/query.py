"""Queries for lists of traces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from specmesh.traces.summary import Outcome


class Order(StrEnum):
    """The order of a list."""

    NEWEST = "newest"
    SLOWEST = "slowest"


_ORDERS = {
    # A clock may be wrong by years, but no trace begins after it is stored.
    Order.NEWEST: "min(start_ns, stored_s * 1e9) DESC, start_ns DESC",
    Order.SLOWEST: "duration_ms DESC",
}


READABLE = f"outcome IN {tuple(each.value for each in Outcome)}"
"""The condition that a row meets unless it is damaged, or of a later version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The filters, order and length of a list of traces; a filter of None matches all."""

    min_ms: float | None = None
    outcome: Outcome | None = None
    strategy: str | None = None
    acceptance_below: float | None = None
    """Acceptance below this share, from 0 to 1."""
    session: str | None = None
    node: str | None = None
    since_s: float | None = None
    """Earliest start of the root, in seconds since 1970."""
    incomplete: bool = False
    """Select only traces that lack spans."""
    begun: bool = False
    """Select only answers that began, not refused requests or calls such as ListModels."""
    internal: bool = False
    """Include calls inside the mesh that belong to no answer, such as for a replica's model."""
    order: Order = Order.NEWEST
    limit: int = 20

    def sql(self) -> tuple[str, list[object]]:
        """Return the SQL that follows ``SELECT ... FROM traces``, and its parameters."""
        clauses = {READABLE: None, **dict(self._clauses())}
        where = f" WHERE {' AND '.join(clauses)}"
        parameters = [value for value in clauses.values() if value is not None]
        return f"{where} ORDER BY {_ORDERS[self.order]} LIMIT ?", [*parameters, self.limit]

    def _clauses(self) -> Iterator[tuple[str, object]]:
        wanted: dict[str, object] = {
            "duration_ms >= ?": self.min_ms,
            "outcome = ?": self.outcome,
            "strategy = ?": self.strategy,
            "acceptance < ?": self.acceptance_below,
            "instr(char(10) || session || char(10), ?)": _line(self.session),
            "instr(nodes, ?)": _line(self.node),
            "start_ns >= ?": None if self.since_s is None else int(self.since_s * 1e9),
        }
        yield from ((clause, value) for clause, value in wanted.items() if value is not None)
        if self.incomplete:
            yield "num_missing > 0", None
        if self.begun:
            yield "session != ''", None
        if not self.internal:
            yield "name NOT LIKE 'specmesh.mesh.%'", None


def _line(text: str | None) -> str | None:
    return None if text is None else f"\n{text}\n"

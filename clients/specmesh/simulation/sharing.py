"""The speeds of services that share a machine.

Services that work at the same time share their common cores (processor sharing, with equal parts,
Kleinrock 1967), and a drafter and a verifier also slow each other down.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from specmesh.simulation.costs import Cores, MeshCosts
from specmesh.simulation.servers import SimulatedServer

TARGET, DRAFTER, ORCHESTRATOR = "target", "drafter", "orchestrator"


class SharedMachine:
    """A machine with one server of each role, whose speeds depend on which of them are busy."""

    def __init__(self, costs: MeshCosts, servers: Mapping[str, SimulatedServer]) -> None:
        self._costs = costs
        self._servers = servers
        self._known: dict[frozenset[str], Mapping[str, float]] = {}
        for server in servers.values():
            server.on_busy = self._changed

    def _changed(self) -> None:
        busy = frozenset(role for role, server in self._servers.items() if server.is_busy)
        if busy not in self._known:
            self._known[busy] = speeds(busy, self._costs)
        for role, speed in self._known[busy].items():
            self._servers[role].work_at(speed)


def speeds(busy: Collection[str], costs: MeshCosts) -> dict[str, float]:
    """Return the speed of each busy service, as a share of its full speed."""
    found = {role: core_share(role, busy, costs.cores) for role in busy}
    if {DRAFTER, TARGET} <= found.keys():
        found[DRAFTER] = min(found[DRAFTER], 1 / costs.contention.drafter)
        found[TARGET] = min(found[TARGET], 1 / costs.contention.target)
    return found


def core_share(role: str, busy: Collection[str], cores: Mapping[str, Cores]) -> float:
    """Return the share of its full speed at which ``role`` works while all of ``busy`` (itself
    included) do."""
    if role not in cores:
        return 1.0
    rivals = [
        cores[other]
        for other in busy
        if other in cores and set(cores[other].numbers) & set(cores[role].numbers)
    ]
    room = set[int]().union(*(each.numbers for each in rivals))
    return min(1.0, len(room) / sum(each.threads for each in rivals))

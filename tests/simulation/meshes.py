"""Meshes of laws with one number."""

from collections.abc import Sequence
from typing import Any

from specmesh.simulation.costs import Hop, MeshCosts
from specmesh.simulation.law import Law
from specmesh.simulation.mesh import MeshModel


def law(given: Law | float) -> Law:
    """A law that is given, or of that many seconds for each forward."""
    return given if isinstance(given, Law) else Law.fixed(1e3 * given)


def mesh_of(
    target: Law | float,
    drafters: Sequence[Law | float] = (),
    num_verifiers: int = 1,
    hop_s: float = 0.0,
    *,
    heads_s: float | None = None,
    **rest: Any,
) -> MeshModel:
    """A mesh of these laws, or of laws of that many seconds; a hop is one way."""
    hop = Hop(2e3 * hop_s)
    heads = None if heads_s is None else law(heads_s)
    costs = MeshCosts(law(target), tuple(map(law, drafters)), heads, hop, hop)
    return MeshModel(costs, num_verifiers, **rest)

"""A target that answers immediately, to measure the cost of a call itself."""

from __future__ import annotations

from specmesh.inference.backends.registry import Backend
from specmesh.inference.models.simulated.empty import EmptyModel

BACKENDS = (
    Backend(
        name="empty",
        summary="answers immediately, to measure network hops",
        load_target=lambda settings, ranks: EmptyModel(),  # noqa: ARG005
    ),
)

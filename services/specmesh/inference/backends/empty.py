"""A target that answers immediately, to measure the cost of a call itself."""

from __future__ import annotations

from typing import Any

from specmesh.inference.backends.registry import Backend
from specmesh.inference.model import LanguageModel
from specmesh.inference.models.simulated.empty import EmptyModel
from specmesh.inference.models.tensor_parallel import Ranks


def load_target(settings: Any, ranks: Ranks | None) -> LanguageModel:  # noqa: ARG001
    """Return the empty target."""
    return EmptyModel()


BACKENDS = (Backend(name="empty", load_target=load_target),)

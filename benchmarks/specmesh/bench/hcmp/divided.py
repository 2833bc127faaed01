"""The division of a model that is divided among units."""

from __future__ import annotations

from specmesh.inference.models.transformers_model import TransformersModel
from specmesh.inference.models.units.divider import CrewDivider


def divider_of(model: TransformersModel) -> CrewDivider:
    """Return what divides the forwards of ``model``."""
    assert isinstance(model.divider, CrewDivider)
    return model.divider

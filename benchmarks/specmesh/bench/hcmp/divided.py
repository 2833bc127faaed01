"""The crew of a model that is divided among units."""

from __future__ import annotations

from specmesh.inference.models.transformers_model import TransformersModel
from specmesh.inference.models.units.model_crew import ModelCrew


def crew_of(model: TransformersModel) -> ModelCrew:
    """Return the crew that computes ``model``."""
    assert isinstance(model.divider, ModelCrew)
    return model.divider

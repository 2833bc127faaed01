"""The backend of models whose forward passes several processing units share."""

from __future__ import annotations

from functools import partial
from typing import Any

from specmesh.inference.backends.registry import Backend
from specmesh.inference.backends.transformers import load_model
from specmesh.inference.model import LanguageModel, ModelNotLoadable
from specmesh.inference.models.units.members.specs import parse_units
from specmesh.inference.models.units.settings import UnitsSettings


def load(settings: Any) -> LanguageModel:
    """Load a target or a drafter, and start its units."""
    from specmesh.inference.models.units.model_crew import ModelCrew

    if settings.device != "cpu":
        raise ModelNotLoadable(
            f"--units: the model must be on the CPU, but --device is {settings.device!r}"
        )
    return load_model(settings, divide=partial(ModelCrew, parse_units(settings.units)))


BACKENDS = (
    Backend(
        name="units",
        summary="shares each forward pass among processing units",
        load_target=lambda settings, ranks: load(settings),  # noqa: ARG005
        load_drafter=load,
        target_settings=UnitsSettings,
        drafter_settings=UnitsSettings,
        reads="model",
        uses=frozenset({"chat_template", "revision"}),
        reasons={"heads": "their layers are not divided among units"},
        threads=lambda settings: len(parse_units(settings.units)[0].numbers),
    ),
)

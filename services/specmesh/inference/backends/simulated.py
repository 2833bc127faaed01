"""The backend of models that wait and return known tokens."""

from __future__ import annotations

from specmesh.inference.backends.registry import Backend
from specmesh.inference.models.simulated.settings import (
    SimulatedDrafterSettings,
    SimulatedTargetSettings,
)

BACKENDS = (
    Backend(
        name="simulated",
        summary="waits and returns known tokens",
        load_target=lambda settings, ranks: settings.simulated_target(),  # noqa: ARG005
        load_drafter=SimulatedDrafterSettings.simulated_drafter,
        target_settings=SimulatedTargetSettings,
        drafter_settings=SimulatedDrafterSettings,
    ),
)

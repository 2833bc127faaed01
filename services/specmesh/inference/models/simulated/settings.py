"""Settings of processes that serve a simulated model."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from specmesh.decoding.simulated.hashed import MIN_VOCAB_SIZE, SimulatedDrafter, SimulatedTarget
from specmesh.inference.engine.heads.target_with_heads import TargetWithHeads
from specmesh.inference.model import LanguageModel
from specmesh.inference.models.simulated.heads import SimulatedHeads
from specmesh.inference.models.simulated.model import ForwardLatency, SimulatedModel

MAX_VOCAB_SIZE = 1 << 20
"""A bound on the rows of logits, of which only the highest two entries matter."""
HEADS_SALT = (1 << 64) - 1
"""Heads agree with the target independently of drafters, whose salts begin at 0."""


class SimulatedSettings(BaseSettings):
    """A mixin for the roles that can serve a simulated model."""

    help_panel: ClassVar[str] = "Simulated models"

    model_config = SettingsConfigDict(frozen=True)

    simulated_seed: int = Field(
        0,
        ge=0,
        lt=1 << 64,
        description="seed of a simulated target's text; the same in the whole mesh",
    )
    simulated_vocab_size: int = Field(
        256,
        ge=MIN_VOCAB_SIZE,
        le=MAX_VOCAB_SIZE,
        description="size of a simulated model's vocabulary",
    )
    simulated_first_ms: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="time of a simulated forward pass for an uncached prefix; "
        "by default that of any other pass",
    )
    simulated_each_ms: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="time of any other simulated forward pass"
    )

    simulated_prefill_ms: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="additional time of a simulated forward pass for each uncached token of the "
        "prefix",
    )
    simulated_batch: int = Field(
        1, ge=1, le=1024, description="most calls that share a simulated forward pass"
    )

    @property
    def _target(self) -> SimulatedTarget:
        return SimulatedTarget(self.simulated_seed, self.simulated_vocab_size)

    @property
    def _latency(self) -> ForwardLatency:
        each_ms, first_ms = self.simulated_each_ms, self.simulated_first_ms
        return ForwardLatency(
            (each_ms if first_ms is None else first_ms) / 1e3,
            each_ms / 1e3,
            self.simulated_prefill_ms / 1e3,
        )


class SimulatedTargetSettings(SimulatedSettings):
    """A mixin for verifiers."""

    help_panel: ClassVar[str] = "Simulated models"

    simulated_heads_depth: int = Field(
        0, ge=0, le=64, description="depth in tokens to which simulated heads draft; 0 for no heads"
    )
    simulated_heads_acceptance: float = Field(
        0.8,
        ge=0,
        le=1,
        description="probability that a token of simulated heads is the target's token",
    )
    simulated_heads_runner_up: float = Field(
        0.5,
        ge=0,
        le=1,
        description="probability that their second choice is, if the first one is not",
    )
    simulated_heads_ms: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="time of a level of simulated heads"
    )

    def simulated_target(self) -> LanguageModel:
        """Return the target with these settings."""
        target = SimulatedModel(self._target, self._latency, self.simulated_batch)
        if not self.simulated_heads_depth:
            return target
        speaker = SimulatedDrafter(
            self._target,
            acceptance=self.simulated_heads_acceptance,
            runner_up=self.simulated_heads_runner_up,
            salt=HEADS_SALT,
        )
        heads = SimulatedHeads(speaker, self.simulated_heads_depth, self.simulated_heads_ms / 1e3)
        return TargetWithHeads(target, heads)


class SimulatedDrafterSettings(SimulatedSettings):
    """A mixin for drafters; it includes the settings of the target that they guess."""

    help_panel: ClassVar[str] = "Simulated models"

    simulated_acceptance: float = Field(
        0.8, ge=0, le=1, description="probability that a simulated draft token is the target's"
    )
    simulated_runner_up: float = Field(
        0.5,
        ge=0,
        le=1,
        description="probability that the second choice is, if the first one is not",
    )
    simulated_salt: int = Field(
        0, ge=0, lt=1 << 64, description="seed that distinguishes simulated drafters of one target"
    )

    def simulated_drafter(self) -> SimulatedModel:
        """Return the drafter with these settings."""
        drafter = SimulatedDrafter(
            self._target,
            acceptance=self.simulated_acceptance,
            runner_up=self.simulated_runner_up,
            salt=self.simulated_salt,
        )
        return SimulatedModel(drafter, self._latency, self.simulated_batch)

"""The options of benchmarks that make an ``Experiment``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specmesh.tools.kit.experiment import SEED, TEMPERATURES, Experiment, Speculation
from specmesh.tools.kit.options import NumPrompts, PromptsFile, Seed, Temperatures, Tokens
from specmesh.tools.kit.prompts import read_prompts


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentOptions:
    """The prompts, and the settings in which all speculations answer them."""

    prompts: PromptsFile = None
    num_prompts: NumPrompts = 20
    tokens: Tokens = 128
    temperature: Temperatures = None
    seed: Seed = SEED

    def experiment(self, speculations: Sequence[Speculation]) -> Experiment:
        """Return the experiment that compares ``speculations``."""
        return Experiment(
            prompts=read_prompts(self.prompts)[: self.num_prompts],
            speculations=speculations,
            temperatures=tuple(dict.fromkeys(self.temperature or TEMPERATURES)),
            num_tokens=self.tokens,
            seed=self.seed,
        )

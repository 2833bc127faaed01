"""The options of all calibrations: the pair of models, and the prompts to calibrate on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from specmesh import models
from specmesh.inference.model import LanguageModel
from specmesh.tools.kit.options import Temperatures, Threads

TEMPERATURES = (0.0, 0.8)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationOptions:
    """The pair, and the prompts and temperatures of its answers."""

    target_model: Annotated[
        str | None, typer.Option(help="Target: folder or Hugging Face id.", show_default="shipped")
    ] = None
    drafter_model: Annotated[
        str | None, typer.Option(help="Drafter: folder or Hugging Face id.", show_default="shipped")
    ] = None
    prompts: Annotated[
        int,
        typer.Option(min=2, help="Number of held-out prompts: half for the fit, half to judge it."),
    ] = 64
    temperature: Temperatures = None
    threads: Threads = 2

    @property
    def temperatures(self) -> Sequence[float]:
        """The temperatures, without repetitions."""
        return tuple(dict.fromkeys(self.temperature or TEMPERATURES))

    @property
    def target(self) -> str:
        """The folder or Hugging Face id of the target."""
        return self.target_model or str(models.path(models.TARGET))

    def load_pair(self) -> tuple[LanguageModel, LanguageModel]:
        """Load the target and the drafter. Raises ``ModelNotLoadable``."""
        import torch

        from specmesh.inference.models.transformers_model import TransformersModel

        torch.set_num_threads(self.threads)
        names = (self.target, self.drafter_model or str(models.path(models.DRAFTER)))
        first, second = (
            TransformersModel.load(name, dtype="float32", device="cpu") for name in names
        )
        return first, second

    def prompts_in_halves(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return as many of the shipped prompts, from both halves of the list, which is sorted by
        file."""
        texts = [prompt.text for prompt in models.heldout_prompts()]
        middle, half = len(texts) // 2, self.prompts // 2
        return texts[:middle][:half], texts[middle:][:half]

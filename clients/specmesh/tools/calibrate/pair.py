"""The pair of models to calibrate, and the prompts to calibrate on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from specmesh import models
from specmesh.inference.model import LanguageModel

TEMPERATURES = (0.0, 0.8)

TargetModel = Annotated[
    str | None, typer.Option(help="Target: folder or Hugging Face id.", show_default="shipped")
]
DrafterModel = Annotated[
    str | None, typer.Option(help="Drafter: folder or Hugging Face id.", show_default="shipped")
]
NumPrompts = Annotated[
    int, typer.Option(min=2, help="Number of held-out prompts: half for the fit, half to judge it.")
]


def load_pair(
    target: str | None, drafter: str | None, threads: int
) -> tuple[LanguageModel, LanguageModel]:
    """Load the target and the drafter. Raises ``ModelNotLoadable``."""
    import torch

    from specmesh.inference.models.transformers_model import TransformersModel

    torch.set_num_threads(threads)
    names = (target or str(models.path(models.TARGET)), drafter or str(models.path(models.DRAFTER)))
    first, second = (TransformersModel.load(name, dtype="float32", device="cpu") for name in names)
    return first, second


def prompts_in_halves(count: int) -> tuple[Sequence[str], Sequence[str]]:
    """Return ``count`` of the shipped prompts, from both halves of the list, which is sorted by
    file."""
    texts = [prompt.text for prompt in models.heldout_prompts()]
    middle = len(texts) // 2
    return texts[:middle][: count // 2], texts[middle:][: count // 2]

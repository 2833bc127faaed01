"""The options that several benchmarks share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

MAX_SEED = 2**53 - 1


class Dtype(StrEnum):
    """The number types of weights and activations."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


PromptsFile = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="File of prompts: a JSON list of objects with a 'text'.",
        show_default="shipped",
    ),
]
NumPrompts = Annotated[int, typer.Option(min=1, help="Number of prompts.")]
Tokens = Annotated[int, typer.Option(min=8, help="Length of each answer, in tokens.")]
Verifiers = Annotated[int, typer.Option(min=1, help="Replicas of the target.")]
Temperatures = Annotated[
    list[float] | None,
    typer.Option(
        "--temperature",
        min=0,
        help="Temperature of sampling. May be repeated.",
        show_default="0 and 0.8",
    ),
]
Seed = Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the sampling.")]
Model = Annotated[
    str | None, typer.Option(help="Folder or Hugging Face id.", show_default="the shipped target")
]
ModelDtype = Annotated[Dtype, typer.Option(help="Number type of weights and activations.")]
Device = Annotated[str, typer.Option(help="torch device.")]
Threads = Annotated[int, typer.Option(min=1, help="Number of threads of a forward.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]

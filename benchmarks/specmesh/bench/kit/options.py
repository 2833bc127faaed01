"""Options that several benchmarks have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_MAX_UINT64 = 2**64 - 1

PromptsFile = Annotated[
    Path | None, typer.Option(help="JSON list of objects with a 'text'.", show_default="shipped")
]
NumPrompts = Annotated[int, typer.Option(min=1, help="How many of them.")]
Tokens = Annotated[int, typer.Option(min=8, help="Length of each answer.")]
Verifiers = Annotated[int, typer.Option(min=1, help="Replicas of the target.")]
Temperatures = Annotated[
    list[float] | None,
    typer.Option(
        "--temperature", min=0, help="Several times for several.", show_default="0 and 0.8"
    ),
]
Seed = Annotated[int, typer.Option(min=0, max=_MAX_UINT64, help="Of the sampling.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

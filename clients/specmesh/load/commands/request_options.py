"""The options that say which requests a load consists of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from specmesh.client.requests.speculation import STRATEGY_OPTIONS
from specmesh.load.commands.parsing import length_option, parsed_by, time_option
from specmesh.load.workload import lengths
from specmesh.load.workload.variations import SAMPLING, Variation, variation

_MAX_SEED = 2**53 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequestOptions:
    """The requests: their prompts, the lengths of their answers, and what they ask for."""

    help_panel: ClassVar = "Requests"

    prompts: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="File of prompts: .jsonl, .json such as ShareGPT's, or text with one per line.",
        ),
    ] = None
    prompt_tokens: Annotated[
        Any,
        length_option("128", f"Length of random prompts, used without --prompts: {lengths.FORMS}."),
    ] = lengths.ConstantLength(128)  # noqa: RUF009 - it is frozen
    prefix_groups: Annotated[
        int,
        typer.Option(min=0, help="Number of prefixes; each random prompt begins with one of them."),
    ] = 0
    prefix_tokens: Annotated[int, typer.Option(min=1, help="Length of each prefix.")] = 256
    turns: Annotated[Any, length_option("1", "Turns of each random conversation.")] = (
        lengths.ConstantLength(1)  # noqa: RUF009 - it is frozen
    )
    output_tokens: Annotated[
        Any, length_option("64", "Length limit of answers whose prompt sets none.")
    ] = lengths.ConstantLength(64)  # noqa: RUF009 - it is frozen
    ignore_end: Annotated[
        bool, typer.Option("--ignore-end", help="Generate up to the limit, past the end of text.")
    ] = False
    strategy: Annotated[str, typer.Option(help="Decoding strategy; see 'specmesh models'.")] = ""
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            metavar="NAME=VALUE",
            help=f"Set one of {', '.join((*SAMPLING, *STRATEGY_OPTIONS))}. May be repeated.",
        ),
    ] = None
    mix: Annotated[
        list[Any] | None,
        typer.Option(
            parser=parsed_by(variation),
            metavar="'WEIGHT NAME=VALUE...'",
            help="Mix several kinds of requests by weight: --mix '3 strategy=dsi' --mix '1 "
            "strategy=autoregressive temperature=0.8'.",
        ),
    ] = None
    cancel: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the requests to cancel.")
    ] = 0.0
    cancel_after: Annotated[
        Any, length_option("uniform:1-32", "Number of tokens after which to cancel.")
    ] = lengths.Uniform(1, 32)  # noqa: RUF009 - it is frozen
    timeout: Annotated[
        float, time_option("60s", "Deadline of each request, from when it is due.")
    ] = 60.0
    seed: Annotated[
        int,
        typer.Option(min=0, max=_MAX_SEED, help="Equal seeds send equal requests at equal times."),
    ] = 0

    @property
    def mixed(self) -> list[Variation]:
        """Return the values of ``--mix``."""
        return self.mix or []

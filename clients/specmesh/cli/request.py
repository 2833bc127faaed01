"""What is asked for: the options of all commands that generate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from specmesh.client import AcceptanceMode
from specmesh.client.speculation import STRATEGY_OPTIONS, read_option

_MAX_UINT32 = 2**32 - 1
_MAX_SEED = 2**53 - 1

ModelName = Annotated[str, typer.Option("--model", help="Default: the only one.")]
MaxTokens = Annotated[int | None, typer.Option(min=0, max=_MAX_UINT32, help="Limit of the answer.")]
Temperature = Annotated[float | None, typer.Option(help="0 is greedy.")]
TopK = Annotated[int | None, typer.Option(min=0, max=_MAX_UINT32, help="0 keeps all tokens.")]
TopP = Annotated[float | None, typer.Option(help="1 keeps all tokens.")]
Seed = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=_MAX_SEED,
        help="Equal seeds give equal answers; with strategy filter only at a --threshold.",
    ),
]
Mode = Annotated[AcceptanceMode | None, typer.Option(help="What 'lossless' means when sampling.")]
Stops = Annotated[list[str] | None, typer.Option("--stop", help="String that ends the answer.")]
StrategyName = Annotated[str, typer.Option("--strategy", help="See 'specmesh models'.")]
StrategyOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help=f"Option of the strategy: {', '.join(STRATEGY_OPTIONS)}. Repeat it for several.",
    ),
]
Timeout = Annotated[float | None, typer.Option(min=0, help="Seconds for the whole answer.")]


def strategy_options(given: Iterable[str]) -> dict[str, Any]:
    """The values of ``NAME=VALUE``, by their names. Raises BadParameter."""
    options: dict[str, Any] = {}
    for each in given:
        name, _, text = each.partition("=")
        try:
            options[name] = read_option(name, text)
        except (TypeError, ValueError) as error:
            raise typer.BadParameter(str(error), param_hint="--option") from None
    return options

"""What is asked for: the options of all commands that generate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from specmesh.client import AcceptanceMode, ServedModel
from specmesh.client.requests.speculation import STRATEGY_OPTIONS, read_option

_MAX_UINT32 = 2**32 - 1
_MAX_SEED = 2**53 - 1

ModelName = Annotated[str, typer.Option("--model", help="Default: the only one.")]
MaxTokens = Annotated[int | None, typer.Option(min=1, max=_MAX_UINT32, help="Limit of the answer.")]
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


def _check_seconds(seconds: float | None) -> float | None:
    """Refuse no time at all, and time without end."""
    if seconds is not None and not 0 < seconds < math.inf:
        raise typer.BadParameter(f"{seconds:g} is no time: it must be above 0 and finite")
    return seconds


Timeout = Annotated[
    float | None, typer.Option(help="Seconds for the whole answer.", callback=_check_seconds)
]

FLAGS = {
    "sampling.temperature": "--temperature",
    "sampling.top_k": "--top-k",
    "sampling.top_p": "--top-p",
    "sampling.seed": "--seed",
    "sampling.acceptance_mode": "--mode",
    "stopping.max_tokens": "--max-tokens",
    "stopping.stop_strings": "--stop",
    "stopping.ignore_end_of_text": "--ignore-end-of-text",
    "speculation.strategy": "--strategy",
    "speculation.filter": "--scorer, --threshold or --escalation-rate",
    "speculation.filter.scorer": "--scorer",
    "speculation.filter.threshold": "--threshold",
    "speculation.filter.escalation_rate": "--escalation-rate",
    **{f"speculation.{name}": f"--option {name}" for name in STRATEGY_OPTIONS},
    "num_top_logprobs": "--logprobs",
    "request_id": "--request-id",
    "model": "--model",
    "text": "the prompt",
    "chat": "the conversation",
}
"""What the caller wrote, by the field of the request that it became."""


def flag_of(field: str) -> str:
    """What the caller wrote that is in ``field``, or the field itself."""
    path = field.partition("[")[0]
    return FLAGS.get(path) or FLAGS.get(path.partition(".")[0]) or field


def check_options(
    served: Sequence[ServedModel], model: str, strategy: str, options: Mapping[str, object]
) -> None:
    """Raise BadParameter for an option that means nothing to the strategy, as far as the mesh says
    which strategy and options there are."""
    for each in served:
        if model in {"", each.target.name}:
            name = strategy or each.default_strategy
            for known in each.strategies:
                if known.name == name and (wrong := sorted(options.keys() - set(known.options))):
                    raise typer.BadParameter(
                        f"the strategy {name!r} has no {wrong[0]}, "
                        f"only: {', '.join(known.options) or 'nothing'}",
                        param_hint="--option",
                    )
            return


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

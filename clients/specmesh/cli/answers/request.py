"""Request options of all commands that generate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from specmesh.client import AcceptanceMode, ServedModel
from specmesh.client.requests.speculation import STRATEGY_OPTIONS, read_option

_MAX_UINT32 = 2**32 - 1
_MAX_SEED = 2**53 - 1

SAMPLING, STOPPING, SPECULATION = "Sampling", "Stopping", "Speculation"
"""Groups of options in the help."""

ModelName = Annotated[
    str,
    typer.Option("--model", help="Use this target model; may be omitted if only one is served."),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=_MAX_UINT32,
        help="End the answer after this many tokens.",
        rich_help_panel=STOPPING,
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(help="Set the temperature; 0 decodes greedily.", rich_help_panel=SAMPLING),
]
TopK = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=_MAX_UINT32,
        help="Sample from this many likeliest tokens; 0 keeps all.",
        rich_help_panel=SAMPLING,
    ),
]
TopP = Annotated[
    float | None,
    typer.Option(
        help="Sample from the likeliest tokens with this total probability; 1 keeps all.",
        rich_help_panel=SAMPLING,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=_MAX_SEED,
        help="Fix the seed, so that a repeated request has the same answer; strategy filter also "
        "needs a --threshold for that.",
        rich_help_panel=SAMPLING,
    ),
]
Mode = Annotated[
    AcceptanceMode | None,
    typer.Option(
        help="Choose what 'lossless' means: 'coupled' gives the very text that the target alone "
        "generates with this seed, 'rejection' only its distribution, with higher acceptance.",
        rich_help_panel=SAMPLING,
    ),
]
Stops = Annotated[
    list[str] | None,
    typer.Option(
        "--stop",
        help="End the answer at this string; repeat the option for several.",
        rich_help_panel=STOPPING,
    ),
]
StrategyName = Annotated[
    str,
    typer.Option(
        "--strategy",
        help="Use this strategy; 'specmesh models' lists them.",
        rich_help_panel=SPECULATION,
    ),
]
StrategyOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help=f"Set an option of the strategy: {', '.join(STRATEGY_OPTIONS)}. Repeat this for "
        "several.",
        rich_help_panel=SPECULATION,
    ),
]


def _check_seconds(seconds: float | None) -> float | None:
    """Refuse a timeout that is not positive and finite."""
    if seconds is not None and not 0 < seconds < math.inf:
        raise typer.BadParameter(f"{seconds:g} is not a timeout: it must be above 0 and finite")
    return seconds


Timeout = Annotated[
    float | None,
    typer.Option(
        help="Cancel the answer if it takes longer than this many seconds.",
        callback=_check_seconds,
    ),
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
"""Command-line options by the request field that they set."""


def flag_of(field: str) -> str:
    """Return the command-line option that sets ``field``, or else ``field`` itself."""
    path = field.partition("[")[0]
    return FLAGS.get(path) or FLAGS.get(path.partition(".")[0]) or field


def check_options(
    served: Sequence[ServedModel], model: str, strategy: str, options: Mapping[str, object]
) -> None:
    """Raise BadParameter for an option that the strategy does not use, as far as the mesh lists its
    strategies."""
    for each in served:
        if model in {"", each.target.name}:
            name = strategy or each.default_strategy
            for known in each.strategies:
                if known.name == name and (wrong := sorted(options.keys() - set(known.options))):
                    raise typer.BadParameter(
                        f"the strategy {name!r} has no option {wrong[0]!r}; "
                        f"its options are: {', '.join(known.options) or 'none'}",
                        param_hint="--option",
                    )
            return


def strategy_options(given: Iterable[str]) -> dict[str, Any]:
    """Parse options written as ``NAME=VALUE``. Raises BadParameter."""
    options: dict[str, Any] = {}
    for each in given:
        name, _, text = each.partition("=")
        try:
            options[name] = read_option(name, text)
        except (TypeError, ValueError) as error:
            raise typer.BadParameter(str(error), param_hint="--option") from None
    return options

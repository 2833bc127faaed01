"""Request options of all commands that generate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specmesh.client import ServedModel, Strategy
from specmesh.client.requests.sampling import (
    SAMPLING_FIELDS,
    STOPPING_FIELDS,
    VALUE_TYPES,
    SamplingOptions,
    StoppingOptions,
    flags,
)
from specmesh.client.requests.speculation import STRATEGY_OPTIONS, read_option

SPECULATION = "Speculation"
"""A group of options in the help."""

_FLAGS = flags(StoppingOptions) | flags(SamplingOptions)


def _flag(name: str) -> str:
    """Return the option that sets the field ``name``."""
    return _FLAGS[name].name or f"--{name.replace('_', '-')}"


def _option(name: str) -> tuple[str, Any, Any]:
    """Return the dataclass field for the request's field ``name``, with its default."""
    flag, field = _FLAGS[name], SAMPLING_FIELDS.get(name) or STOPPING_FIELDS[name]
    kind: Any = VALUE_TYPES.get(field.cpp_type, Any)
    option = typer.Option(
        _flag(name),
        parser=flag.parse,
        metavar=flag.metavar,
        min=flag.least if kind is int else None,
        max=flag.most if kind is int else None,
        help=flag.help,
        rich_help_panel="Sampling" if name in SAMPLING_FIELDS else "Stopping",
    )
    if kind is bool:
        return name, Annotated[bool, option], False
    return name, Annotated[(list[kind] if field.is_repeated else kind) | None, option], None


if TYPE_CHECKING:

    @dataclass(frozen=True)
    class FieldOptions:
        """The sampling and stopping fields of a request."""
else:
    FieldOptions = make_dataclass("FieldOptions", map(_option, _FLAGS), frozen=True, kw_only=True)

ModelName = Annotated[
    str,
    typer.Option("--model", help="Use this target model; may be omitted if only one is served."),
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
    **{f"sampling.{name}": _flag(name) for name in SAMPLING_FIELDS if name in _FLAGS},
    **{f"stopping.{name}": _flag(name) for name in STOPPING_FIELDS if name in _FLAGS},
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


def named(served: Iterable[ServedModel], name: str) -> ServedModel | None:
    """Return the one of ``served`` with that name, an empty one being that of the first."""
    return next((each for each in served if name in {"", each.target.name}), None)


def check_options(
    served: Sequence[ServedModel], model: str, strategy: str, options: Mapping[str, object]
) -> None:
    """Raise BadParameter for an option that the strategy does not use, as far as the mesh lists its
    strategies."""
    if (found := named(served, model)) is None:
        return
    name = strategy or found.default_strategy
    for known in found.strategies:
        if known.name == name and (wrong := sorted(options.keys() - set(known.options))):
            fitting = ", ".join(_that_take(options.keys(), found.strategies))
            hint = f"; choose another by --strategy: {fitting}" if fitting else ""
            why = f"has no option {wrong[0]!r}; its options are: {', '.join(known.options)}"
            if not known.options:
                why = "takes no options"
            raise typer.BadParameter(f"the strategy {name!r} {why}{hint}", param_hint="--option")


def _that_take(options: Set[str], strategies: Iterable[Strategy]) -> Iterator[str]:
    """Yield the names of the lossless strategies that can be used now and have all ``options``."""
    for each in strategies:
        if each.available and each.lossless and options <= set(each.options):
            yield each.name


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

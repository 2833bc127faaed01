"""``-o``: options for the strategies that a command runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer

from specmesh.client.requests.speculation import read_option
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.options import OPTIONS, StrategyOptions

GivenOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="[STRATEGY.]NAME=VALUE",
        help="Set an option of one strategy, or of all that have it: "
        f"{', '.join(OPTIONS)}. May be repeated.",
    ),
]


def read_options(strategies: Sequence[str], given: Iterable[str]) -> Mapping[str, StrategyOptions]:
    """Return the options of each strategy, by its name.

    Raises BadParameter for a text that is not an option, for a value that the option can't have,
    and for an option that none of the chosen strategies has.
    """
    options = dict.fromkeys(strategies, StrategyOptions())
    for text in given:
        name, value, takers = _read(text, strategies)
        for taker in takers:
            options[taker] = replace(options[taker], **{name: value})
    return options


def _read(text: str, strategies: Sequence[str]) -> tuple[str, Any, Sequence[str]]:
    """Return the option's name, its value, and the strategies that receive it."""
    key, _, written = text.partition("=")
    strategy, _, name = key.rpartition(".")
    try:
        value: Any = read_option(name, written)
    except (TypeError, ValueError) as error:
        raise _refused(str(error)) from None
    refusal = OPTIONS[name].refusal(value)
    if refusal is not None:
        raise _refused(f"{name} {refusal}")
    if strategy and strategy not in strategies:
        raise _refused(f"{strategy!r} is not one of: {', '.join(strategies)}")
    asked = (strategy,) if strategy else strategies
    takers = [each for each in asked if name in STRATEGIES[each].options]
    if not takers:
        raise _refused(f"{name} is not an option of: {', '.join(asked)}")
    return name, value, takers


def _refused(message: str) -> typer.BadParameter:
    return typer.BadParameter(message, param_hint="--option")

"""Options whose texts are parsed or checked: times, lengths, rates and others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import typer

from specmesh.load.workload import durations, lengths

P = TypeVar("P")


def parsed_by(parse: Callable[[str], P]) -> Callable[[str | P], P]:
    """Wrap ``parse`` for an option, so that the user reads the message of its ValueError.

    Values other than strings, which are defaults, pass unchanged.
    """

    def wrapped(given: str | P) -> P:
        try:
            return parse(given) if isinstance(given, str) else given
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return wrapped


def finite_rate(rate: float | None) -> float | None:
    """Return ``rate``; the callback of an option for one. Raises BadParameter if it is not finite,
    which bounds let pass: such a load would never end."""
    if rate is not None and not math.isfinite(rate):
        raise typer.BadParameter(f"must be finite, not {rate}; for a burst use --users N")
    return rate


def time_option(shown: str, help_: str) -> Any:
    """Return an option for a time with a unit, of which ``shown`` is the default in the help."""
    return _option(durations.seconds, "TIME", shown, help_)


def positive_time_option(shown: str, help_: str) -> Any:
    """Return an option for a time that is more than 0, in the same way."""

    def positive(text: str) -> float:
        found = durations.seconds(text)
        if not found:
            raise ValueError("must be more than 0")
        return found

    return _option(positive, "TIME", shown, help_)


def length_option(shown: str, help_: str) -> Any:
    """Return an option for a constant or random length, in the same way."""
    return _option(lengths.length, "LENGTH", shown, help_)


def _option(parse: Callable[[str], Any], metavar: str, shown: str, help_: str) -> Any:
    return typer.Option(parser=parsed_by(parse), metavar=metavar, show_default=shown, help=help_)

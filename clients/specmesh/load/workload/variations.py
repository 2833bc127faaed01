"""Variations of requests: strategy, its options and sampling, chosen by weight."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from specmesh.client.requests.sampling import (
    SAMPLING_FIELDS,
    VALUE_TYPES,
    sampling_parameters,
)
from specmesh.client.requests.speculation import STRATEGY_OPTIONS, read_option

SAMPLING: Mapping[str, type] = {
    name: VALUE_TYPES[field.cpp_type]
    for name, field in SAMPLING_FIELDS.items()
    if name not in {"seed", "acceptance_mode", "grammar"} and not field.is_repeated
}
"""The numbers that control sampling, each with its type. The load's own seed draws the seeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """One variation. Its share of the requests is ``weight`` over the sum of all weights."""

    weight: float = 1.0
    strategy: str = ""
    """Empty for the server's default."""
    options: Mapping[str, float | str] = field(default_factory=dict)
    """Options of the strategy."""
    sampling: Mapping[str, float] = field(default_factory=dict)
    """Values for names of ``SAMPLING``; missing ones take the server's default."""

    @property
    def name(self) -> str:
        """Return a readable name, such as ``dsi lookahead=4 temperature=0.8``."""
        given = {**self.options, **self.sampling}
        settings = [
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
            for name, value in given.items()
        ]
        return " ".join((self.strategy or "default", *settings))

    def having(self, name: str, text: str) -> Variation:
        """Return a copy with one setting changed: ``strategy``, one of ``SAMPLING``, or an option
        of the strategy.

        Raises ValueError for an unknown name or an invalid value.
        """
        strategy, options, sampling = self.strategy, dict(self.options), dict(self.sampling)
        if name == "strategy":
            strategy = text
        elif name in SAMPLING:
            sampling[name] = _number(name, text)
        elif name in STRATEGY_OPTIONS:
            options[name] = read_option(name, text)
        else:
            known = ", ".join(("strategy", *SAMPLING, *STRATEGY_OPTIONS))
            raise ValueError(f"{name!r} is not an option; the options are: {known}")
        return Variation(weight=self.weight, strategy=strategy, options=options, sampling=sampling)


def _number(name: str, text: str) -> float:
    """Parse ``text`` as the value of ``name``, one of ``SAMPLING``. Raises ValueError."""
    kind = SAMPLING[name]
    try:
        value: float = kind(text)
        sampling_parameters({name: value})
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        what = "a whole number below 2^32" if kind is int else "a finite number"
        raise ValueError(f"{name} must be {what}, not {text!r}")
    return value


def variation(text: str) -> Variation:
    """Parse ``WEIGHT NAME=VALUE NAME=VALUE...``. Raises ValueError."""
    weight, *settings = text.split() or [""]
    try:
        found = Variation(weight=float(weight))
    except ValueError:
        raise ValueError(f"{text!r} does not begin with a weight, such as 2 or 0.5") from None
    if not 0 < found.weight < float("inf"):
        raise ValueError(f"{text!r}: a weight must be finite and above 0")
    for each in settings:
        name, _, value = each.partition("=")
        found = found.having(name, value)
    return found


def choose(variations: Sequence[Variation], rng: Random) -> int:
    """Draw the index of a variation, by weight."""
    if len(variations) == 1:
        return 0
    weights = [each.weight for each in variations]
    return rng.choices(range(len(variations)), weights)[0]

"""Distributions of lengths, in tokens or turns, drawn for each request."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Protocol

LONGEST = 2**31 - 1
"""The highest length: no server takes a higher limit."""


class Length(Protocol):
    """A distribution of lengths."""

    kind: ClassVar[str]
    """The name of the class in reports."""

    def draw(self, rng: Random) -> int:
        """Draw a length from 1 to ``LONGEST``."""
        ...


@dataclass(frozen=True, slots=True)
class ConstantLength:
    """A distribution that always draws ``value``."""

    kind: ClassVar[str] = "fixed"

    value: int

    def draw(self, rng: Random) -> int:  # noqa: ARG002
        """Return ``value``."""
        return self.value


@dataclass(frozen=True, slots=True)
class Uniform:
    """A uniform distribution from ``least`` to ``most``, both included."""

    kind: ClassVar[str] = "uniform"

    least: int
    most: int

    def draw(self, rng: Random) -> int:
        """Draw a length."""
        return rng.randint(self.least, self.most)


@dataclass(frozen=True, slots=True)
class Normal:
    """A normal distribution with standard deviation ``sd``; values below 1 become 1, those above
    ``LONGEST`` that."""

    kind: ClassVar[str] = "normal"

    mean: float
    sd: float

    def draw(self, rng: Random) -> int:
        """Draw a length, rounded to a whole number."""
        return round(min(max(1, rng.gauss(self.mean, self.sd)), LONGEST))


@dataclass(frozen=True, slots=True)
class Lognormal:
    """A lognormal distribution with the given median; its logarithm has standard deviation
    ``sigma``. Values above ``LONGEST`` become that. Prompts and answers of real users are similar
    to this, with sigma about 1."""

    kind: ClassVar[str] = "lognormal"

    median: float
    sigma: float

    def draw(self, rng: Random) -> int:
        """Draw a length, rounded to a whole number."""
        logarithm = min(rng.normalvariate(math.log(self.median), self.sigma), math.log(LONGEST))
        return max(1, round(math.exp(logarithm)))


FORMS = "128, uniform:64-256, normal:MEAN,SD or lognormal:MEDIAN,SIGMA"


def length(text: str) -> Length:
    """Parse a distribution in one of ``FORMS``. Raises ValueError."""
    name, _, rest = text.partition(":")
    try:
        match name:
            case "uniform":
                least, most = (int(each) for each in rest.split("-"))
                _check(0 < least <= most <= LONGEST)
                return Uniform(least, most)
            case "normal":
                mean, sd = (float(each) for each in rest.split(","))
                _check(0 < mean <= LONGEST and 0 <= sd < math.inf)
                return Normal(mean, sd)
            case "lognormal":
                median, sigma = (float(each) for each in rest.split(","))
                _check(0 < median <= LONGEST and 0 <= sigma < math.inf)
                return Lognormal(median, sigma)
            case _:
                value = int(text)
                _check(0 < value <= LONGEST)
                return ConstantLength(value)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a length: write {FORMS}, each at most {LONGEST}"
        ) from None


def _check(possible: bool) -> None:
    if not possible:
        raise ValueError

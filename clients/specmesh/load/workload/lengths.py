"""Distributions of lengths, in tokens (or turns): how many, drawn for each request."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Protocol


class Length(Protocol):
    """How long something is."""

    kind: ClassVar[str]
    """The name of the class in reports."""

    def draw(self, rng: Random) -> int:
        """One length, at least 1."""
        ...


@dataclass(frozen=True, slots=True)
class ConstantLength:
    """Always ``value``."""

    kind: ClassVar[str] = "fixed"

    value: int

    def draw(self, rng: Random) -> int:  # noqa: ARG002
        """``value``."""
        return self.value


@dataclass(frozen=True, slots=True)
class Uniform:
    """Each from ``least`` to ``most`` as likely as the others."""

    kind: ClassVar[str] = "uniform"

    least: int
    most: int

    def draw(self, rng: Random) -> int:
        """One of them."""
        return rng.randint(self.least, self.most)


@dataclass(frozen=True, slots=True)
class Normal:
    """Around ``mean``, with standard deviation ``sd``; what falls below 1 is 1."""

    kind: ClassVar[str] = "normal"

    mean: float
    sd: float

    def draw(self, rng: Random) -> int:
        """Rounded to whole tokens."""
        return max(1, round(rng.gauss(self.mean, self.sd)))


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Of which half are below ``median``; its logarithm has standard deviation ``sigma``. Prompts
    and answers of people are much like this, with sigma about 1."""

    kind: ClassVar[str] = "lognormal"

    median: float
    sigma: float

    def draw(self, rng: Random) -> int:
        """Rounded to whole tokens."""
        return max(1, round(rng.lognormvariate(math.log(self.median), self.sigma)))


FORMS = "128, uniform:64-256, normal:MEAN,SD or lognormal:MEDIAN,SIGMA"


def length(text: str) -> Length:
    """The distribution written as ``text``, in one of ``FORMS``. Raises ValueError."""
    name, _, rest = text.partition(":")
    try:
        match name:
            case "uniform":
                least, most = (int(each) for each in rest.split("-"))
                _check(0 < least <= most)
                return Uniform(least, most)
            case "normal":
                mean, sd = (float(each) for each in rest.split(","))
                _check(mean > 0 and sd >= 0)
                return Normal(mean, sd)
            case "lognormal":
                median, sigma = (float(each) for each in rest.split(","))
                _check(median > 0 and sigma >= 0)
                return Lognormal(median, sigma)
            case _:
                value = int(text)
                _check(value > 0)
                return ConstantLength(value)
    except ValueError:
        raise ValueError(f"{text!r} is no length: write {FORMS}") from None


def _check(possible: bool) -> None:
    if not possible:
        raise ValueError

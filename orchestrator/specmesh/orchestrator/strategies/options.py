"""The options of strategies, each declared once.

An option is a field of ``SpeculationOptions`` in the protocol and one of the same name here, with
its allowed values. This declaration is used by the orchestrator to check requests (``plan.py``) and
to store the options of an answer for its resumption (``session_codec.py``), and by the property
tests of all strategies to draw goals. The SDK and the command line pass on every field.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias, get_type_hints

from specmesh.decoding.predict.lookahead import MAX_LOOKAHEAD
from specmesh.decoding.predict.predictors import PREDICTORS
from specmesh.decoding.trees.plan import MAX_WIDTH

MAX_BRANCHES = 64
GROWN = "grown"
"""Trees that grow by the drafter's confidence in its tokens."""
CALIBRATED = "calibrated"
"""Trees of the shape that performed best on calibration text."""


@dataclass(frozen=True, slots=True)
class WholeBetween:
    """Whole numbers from ``low`` to ``high``, both included: ``optional uint32`` on the wire."""

    low: int
    high: int

    def refusal(self, value: int) -> str | None:
        """Return what is wrong with ``value``; None if it is allowed."""
        return None if self.low <= value <= self.high else f"must be in [{self.low}, {self.high}]"


@dataclass(frozen=True, slots=True)
class Between:
    """Real numbers from ``low`` to ``high``, both included: ``optional double`` on the wire, since
    a float would come back as another number."""

    low: float
    high: float

    def refusal(self, value: float) -> str | None:
        """Return what is wrong with ``value``; None if it is allowed."""
        return None if self.low <= value <= self.high else f"must be in [{self.low}, {self.high}]"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of several names: ``string`` on the wire, where an empty one means unset."""

    names: Collection[str]

    def refusal(self, value: str) -> str | None:
        """Return what is wrong with ``value``; None if it is allowed."""
        return None if value in self.names else f"{value!r} is not one of: {', '.join(self.names)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyOptions:
    """Options that a request may set; None (not 0) leaves the choice to the strategy."""

    lookahead: Annotated[int | None, WholeBetween(1, MAX_LOOKAHEAD)] = None
    """Number of draft tokens that a verification covers (γ); for a tree, its depth."""
    num_branches: Annotated[int | None, WholeBetween(1, MAX_BRANCHES)] = None
    """Number of possible outcomes of a verification that are drafted on while it runs."""
    predictor: Annotated[str | None, OneOf(PREDICTORS)] = None
    """The predictor that ranks those outcomes."""
    width: Annotated[int | None, WholeBetween(1, MAX_WIDTH)] = None
    """Most draft tokens in a verification of a tree, or of a chain with second choices."""
    shape: Annotated[str | None, OneOf((GROWN, CALIBRATED))] = None
    """The way to choose the shape of trees that fill a width."""


Allowed: TypeAlias = WholeBetween | Between | OneOf

OPTIONS: Mapping[str, Allowed] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(StrategyOptions, include_extras=True).items()
}
"""The allowed values of each option, by its name."""

"""The options of strategies, each declared once.

An option is a field of ``SpeculationOptions`` in the protocol and one of the same name here, with
the values that it may have. From this declaration the orchestrator checks requests (``plan.py``)
and writes down what a resumed answer goes on with (``sessions.py``), and the property tests of
all strategies draw their goals. The SDK and the command line pass on every field of the message.
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
"""Trees that follow from what the drafter thinks of its tokens."""
CALIBRATED = "calibrated"
"""Trees of the shape that was the best on calibration text."""


@dataclass(frozen=True, slots=True)
class WholeBetween:
    """Whole numbers from ``low`` to ``high``, both included: ``optional uint32`` on the wire."""

    low: int
    high: int

    def refusal(self, value: int) -> str | None:
        """What is wrong with ``value``, if anything is."""
        return None if self.low <= value <= self.high else f"must be in [{self.low}, {self.high}]"


@dataclass(frozen=True, slots=True)
class Between:
    """Real numbers from ``low`` to ``high``, both included: ``optional double`` on the wire, since
    a float would come back as another number."""

    low: float
    high: float

    def refusal(self, value: float) -> str | None:
        """What is wrong with ``value``, if anything is."""
        return None if self.low <= value <= self.high else f"must be in [{self.low}, {self.high}]"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of some names: ``string`` on the wire, where an empty one is none."""

    names: Collection[str]

    def refusal(self, value: str) -> str | None:
        """What is wrong with ``value``, if anything is."""
        return None if value in self.names else f"{value!r} is none of: {', '.join(self.names)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyOptions:
    """What a request asks of its strategy; None (0 is a value) leaves it to the strategy."""

    lookahead: Annotated[int | None, WholeBetween(1, MAX_LOOKAHEAD)] = None
    """The number of draft tokens that a verification covers (γ); of a tree its depth."""
    num_branches: Annotated[int | None, WholeBetween(1, MAX_BRANCHES)] = None
    """The number of outcomes of a verification that are drafted on while it runs."""
    predictor: Annotated[str | None, OneOf(PREDICTORS)] = None
    """What ranks those outcomes."""
    width: Annotated[int | None, WholeBetween(1, MAX_WIDTH)] = None
    """The most draft tokens that a verification of a tree covers, or of a chain that second choices
    join."""
    shape: Annotated[str | None, OneOf((GROWN, CALIBRATED))] = None
    """What trees that fill a width are like."""


Allowed: TypeAlias = WholeBetween | Between | OneOf

OPTIONS: Mapping[str, Allowed] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(StrategyOptions, include_extras=True).items()
}
"""The values that each option may have, by its name."""

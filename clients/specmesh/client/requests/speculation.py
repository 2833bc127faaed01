"""The options of a request that control speculation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError

from specmesh.client.requests.filled import filled, filled_from
from specmesh.v1 import speculation_pb2


@dataclass(frozen=True, slots=True)
class Filter:
    """The rule by which the strategy ``filter`` keeps draft tokens without asking the target.

    ``scorer``, one of those in docs/strategies.md, scores each draft token. A token is kept if its
    score is above ``threshold``, or above all but the share ``escalation_rate`` of recent scores,
    or above all but a share that follows the load of the target's replicas within ``follow_load``
    (lowest, highest). At most one of the three may be set; by default the
    confidence service chooses. Only a ``threshold`` makes an answer reproducible by its seed:
    shares depend on the tokens of all sessions.
    """

    scorer: str = ""
    threshold: float | None = None
    escalation_rate: float | None = None
    follow_load: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        rules = (self.threshold, self.escalation_rate, self.follow_load)
        if sum(rule is not None for rule in rules) > 1:
            raise ValueError("at most one of threshold, escalation_rate and follow_load can be set")
        match self.follow_load:
            case None | (_, _):
                return
        raise TypeError(f"filter.follow_load: expected (lowest, highest), got {self.follow_load!r}")


def filter_options(chosen: Filter) -> speculation_pb2.FilterOptions:
    """Build the message for ``chosen``."""
    rule: dict[str, object] = {
        name: value
        for name in ("threshold", "escalation_rate")
        if (value := getattr(chosen, name)) is not None
    }
    if chosen.follow_load is not None:
        lowest, highest = chosen.follow_load
        rule["follow_load"] = filled(
            speculation_pb2.EscalationBounds, lowest=lowest, highest=highest
        )
    return filled(speculation_pb2.FilterOptions, scorer=chosen.scorer, **rule)


STRATEGY_OPTIONS: Sequence[str] = tuple(
    each.name
    for each in speculation_pb2.SpeculationOptions.DESCRIPTOR.fields
    if each.name not in {"strategy", "filter"}
)
"""Names of the strategies' options."""


def speculation_options(options: Mapping[str, Any]) -> speculation_pb2.SpeculationOptions:
    """Build the message of those ``options`` that are its fields. Raises TypeError for a value of
    the wrong type and ValueError for one that its field can't hold."""
    chosen = options.get("filter")
    if not isinstance(chosen, Filter | None):
        raise TypeError(f"filter: expected a Filter, got {chosen!r}")
    rule = None if chosen is None else filter_options(chosen)
    return filled_from(speculation_pb2.SpeculationOptions, {**options, "filter": rule})


def read_option(name: str, text: str) -> float | str:
    """Parse ``text`` as the value of the strategy option ``name``.

    Raises TypeError for an unknown option and ValueError for a text that is not a value.
    """
    if name not in STRATEGY_OPTIONS:
        close = get_close_matches(name, STRATEGY_OPTIONS, n=1)
        meant = (
            f"did you mean {close[0]!r}?"
            if close
            else f"the options are: {', '.join(STRATEGY_OPTIONS)}"
        )
        raise TypeError(f"{name!r} is not a strategy option; {meant}")
    if not text:
        raise ValueError(f"{name} has no value: write {name}=VALUE")
    try:
        message = ParseDict({name: text}, speculation_pb2.SpeculationOptions())
    except ParseError:
        raise ValueError(f"{name} must be a whole number, not {text!r}") from None
    value: float | str = getattr(message, name)
    return value

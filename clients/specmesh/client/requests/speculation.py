"""What a request says of how it is speculated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from google.protobuf.json_format import ParseDict, ParseError

from specmesh.client.requests.filled import filled
from specmesh.v1 import speculation_pb2


@dataclass(frozen=True, slots=True)
class Filter:
    """Which draft tokens the strategy ``filter`` keeps without asking the target.

    Those whose score by ``scorer`` (log-probability, margin, entropy or calibrated) is above
    ``threshold``; or above all but the share ``escalation_rate`` of recent scores; or the same
    with a share that follows the load of the target's replicas within ``follow_load``, (lowest,
    highest). At most one of the three may be set; without any the confidence service decides.
    Only with a constant ``threshold`` does a seed give the same text again: shares depend on the
    tokens of all sessions.
    """

    scorer: str = ""
    threshold: float | None = None
    escalation_rate: float | None = None
    follow_load: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        rules = (self.threshold, self.escalation_rate, self.follow_load)
        if sum(rule is not None for rule in rules) > 1:
            raise ValueError("at most one of threshold, escalation_rate and follow_load")


def filter_options(chosen: Filter) -> speculation_pb2.FilterOptions:
    """The message for ``chosen``."""
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
"""The names of the options of strategies."""


def speculation_options(
    strategy: str, chosen: Filter | None, options: Mapping[str, float | str | None]
) -> speculation_pb2.SpeculationOptions:
    """Build the message of ``options``, whose names are known. Raises TypeError for one of another
    type, and ValueError for a value that its field can't hold."""
    return filled(
        speculation_pb2.SpeculationOptions,
        strategy=strategy,
        filter=None if chosen is None else filter_options(chosen),
        **options,
    )


def read_option(name: str, text: str) -> float | str:
    """The value of an option of strategies that is written as ``text``.

    Raises TypeError for an option that there isn't and ValueError for a text that is no value.
    """
    if name not in STRATEGY_OPTIONS:
        close = get_close_matches(name, STRATEGY_OPTIONS, n=1)
        meant = (
            f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(STRATEGY_OPTIONS)}"
        )
        raise TypeError(f"{name!r} is no option of strategies; {meant}")
    if not text:
        raise ValueError(f"{name} has no value: write {name}=VALUE")
    try:
        message = ParseDict({name: text}, speculation_pb2.SpeculationOptions())
    except ParseError:
        raise ValueError(f"{name} must be a whole number, not {text!r}") from None
    value: float | str = getattr(message, name)
    return value

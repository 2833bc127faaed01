"""Builds request messages from keyword arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError

from specmesh.v1 import confidence_pb2, sampling_pb2
from specmesh.v1 import generation_pb2 as pb


class AcceptanceMode(StrEnum):
    """The exact meaning of "lossless" for a sampled answer."""

    COUPLED = "coupled"
    """Exactly the text that the target alone generates with the same seed."""
    REJECTION = "rejection"
    """The target's distribution, with the highest acceptance."""


_ACCEPTANCE_MODES = {
    AcceptanceMode.COUPLED: sampling_pb2.ACCEPTANCE_MODE_COUPLED,
    AcceptanceMode.REJECTION: sampling_pb2.ACCEPTANCE_MODE_REJECTION,
}


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


def filter_options(chosen: Filter) -> confidence_pb2.FilterOptions:
    """The message for ``chosen``."""
    options = confidence_pb2.FilterOptions(scorer=chosen.scorer)
    if chosen.threshold is not None:
        options.threshold = chosen.threshold
    if chosen.escalation_rate is not None:
        options.escalation_rate = chosen.escalation_rate
    if chosen.follow_load is not None:
        options.follow_load.lowest, options.follow_load.highest = chosen.follow_load
        options.follow_load.SetInParent()
    return options


def sampling_parameters(
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    seed: int | None,
    acceptance_mode: AcceptanceMode | str | None,
) -> sampling_pb2.SamplingParameters:
    """The message; None leaves the server's default. Raises ValueError for an unknown mode."""
    return sampling_pb2.SamplingParameters(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        acceptance_mode=(
            sampling_pb2.ACCEPTANCE_MODE_UNSPECIFIED
            if acceptance_mode is None
            else _ACCEPTANCE_MODES[AcceptanceMode(acceptance_mode)]
        ),
    )


STRATEGY_OPTIONS: Sequence[str] = tuple(
    each.name
    for each in pb.SpeculationOptions.DESCRIPTOR.fields
    if each.name not in {"strategy", "filter"}
)
"""The names of the options of strategies."""


def speculation_options(
    strategy: str, chosen: Filter | None, options: Mapping[str, float | str | None]
) -> pb.SpeculationOptions:
    """Raises TypeError for an option that there isn't, or one of another type, and ValueError for
    a value that its field can't hold."""
    for name in options:
        _check_known(name)
    given: dict[str, Any] = dict(options)
    return pb.SpeculationOptions(
        strategy=strategy, filter=None if chosen is None else filter_options(chosen), **given
    )


def read_option(name: str, text: str) -> float | str:
    """The value of an option of strategies that is written as ``text``.

    Raises TypeError for an option that there isn't and ValueError for a text that is no value.
    """
    _check_known(name)
    try:
        message = ParseDict({name: text}, pb.SpeculationOptions())
    except ParseError:
        raise ValueError(f"{text!r} can't be {name}") from None
    value: float | str = getattr(message, name)
    return value


def _check_known(name: str) -> None:
    if name not in STRATEGY_OPTIONS:
        known = ", ".join(STRATEGY_OPTIONS)
        raise TypeError(f"{name!r} is no option of strategies; there are: {known}")


def generate_request(
    prompt: str | Sequence[int],
    *,
    model: str,
    sampling: sampling_pb2.SamplingParameters,
    stopping: sampling_pb2.StoppingCriteria,
    speculation: pb.SpeculationOptions,
) -> pb.GenerateRequest:
    """The message. The orchestrator tokenizes a prompt of text, and takes one of ids as it is."""
    request = pb.GenerateRequest(
        model=model, sampling=sampling, stopping=stopping, speculation=speculation
    )
    if isinstance(prompt, str):
        request.text = prompt
    else:
        request.tokens.ids.extend(prompt)
        request.tokens.SetInParent()
    return request

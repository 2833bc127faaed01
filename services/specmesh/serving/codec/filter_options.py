"""Conversion of a request's options for the filter; reading validates, as in ``wire.py``."""

from __future__ import annotations

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.predict.thresholds import (
    Constant,
    EscalationRate,
    FilterOptions,
    FollowLoad,
    Rule,
)
from specmesh.v1 import speculation_pb2


def read_filter_options(
    message: speculation_pb2.FilterOptions, field: str = "options"
) -> FilterOptions:
    """Return a request's options for the filter; ``field`` is the message's name in the request."""
    kind = message.WhichOneof("rule")
    try:
        rule = _read_rule(message)
    except InvalidField as error:
        within = f"{kind}.{error.field}" if kind == "follow_load" else kind
        raise InvalidField(f"{field}.{within}", error.reason) from None
    try:
        return FilterOptions(message.scorer or None, rule)
    except InvalidField as error:
        raise InvalidField(f"{field}.{error.field}", error.reason) from None


def write_filter_options(options: FilterOptions) -> speculation_pb2.FilterOptions:
    """Return the message for ``options``."""
    message = speculation_pb2.FilterOptions(scorer=options.scorer or "")
    match options.rule:
        case Constant(threshold):
            message.threshold = threshold
        case EscalationRate(share):
            message.escalation_rate = share
        case FollowLoad(lowest, highest):
            message.follow_load.lowest, message.follow_load.highest = lowest, highest
        case None:
            pass
    return message


def _read_rule(message: speculation_pb2.FilterOptions) -> Rule | None:
    match message.WhichOneof("rule"):
        case "threshold":
            return Constant(message.threshold)
        case "escalation_rate":
            return EscalationRate(message.escalation_rate)
        case "follow_load":
            return FollowLoad(message.follow_load.lowest, message.follow_load.highest)
        case None:
            return None

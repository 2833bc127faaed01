"""The costs of a round, computed from what its processes counted, and the medians of rounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from specmesh.bench.capacity.placement import Role

_REQUESTS = "rpc_server_call_duration_seconds_count"
_ANSWERS = "specmesh_queue_duration_seconds_count"
_METHODS = {Role.VERIFIER: "Verify", Role.DRAFTER: "Draft"}


class ServedCalls(NamedTuple):
    """The requests that a process with a model has got, and its answers: verdicts, of which a
    request may have several, or drafts."""

    requests: int = 0
    answers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The counters of a mesh's processes so far, by role."""

    processor_s: Mapping[Role, float]
    served: Mapping[Role, ServedCalls]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """The times from one chunk of an answer to the next, in milliseconds."""

    p50: float
    p99: float
    longest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFigures:
    """The costs of one round. Processor times are in µs, by role; that of the orchestrator per call
    is for each call that it makes to a model."""

    tokens_per_s: float
    us_per_token: Mapping[Role, float]
    us_per_call: Mapping[Role, float | None]
    """None for a role that was not called."""
    messages_per_token: float
    """Messages of the orchestrator with models and clients."""
    pauses: Pauses
    at_once: int
    """The most answers between their first and last chunks at any time."""
    resident_kb: float
    """The most memory of the orchestrator, in KB (1,000 bytes)."""
    floor_us_per_message: float


def served_by(role: Role, text: str) -> ServedCalls:
    """Return what a process has served, by its metrics in the text format of Prometheus."""
    samples = [
        sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in {_REQUESTS, _ANSWERS}
    ]
    requests = [
        sample.value
        for sample in samples
        if sample.labels.get("rpc_method", "").rpartition("/")[2].startswith(_METHODS[role])
    ]
    answers = [sample.value for sample in samples if sample.name == _ANSWERS]
    return ServedCalls(round(sum(requests)), round(sum(answers)))


def per_token(before: Counters, after: Counters, tokens: int) -> dict[Role, float]:
    """Return the processor time of each role in µs per token of the answers."""
    return {role: _used_us(before, after, role) / max(1, tokens) for role in before.processor_s}


def per_call(before: Counters, after: Counters) -> dict[Role, float | None]:
    """Return the processor time of each role in µs per answer, the orchestrator's for each answer
    that it got of the models."""
    answers = {role: _served(before, after, role).answers for role in _METHODS}
    calls = {Role.ORCHESTRATOR: sum(answers.values()), **answers}
    return {
        role: _used_us(before, after, role) / number if number else None
        for role, number in calls.items()
    }


def messages_per_token(before: Counters, after: Counters, chunks: int, tokens: int) -> float:
    """Return how many messages the orchestrator sent to, or got from, models and clients for each
    token. A draft is a request, the draft, and its end."""
    verified = _served(before, after, Role.VERIFIER)
    drafted = _served(before, after, Role.DRAFTER)
    with_models = verified.requests + verified.answers + 3 * drafted.requests
    return (with_models + chunks) / max(1, tokens)


def _served(before: Counters, after: Counters, role: Role) -> ServedCalls:
    """Return what a role served between the two."""
    then, now = before.served[role], after.served[role]
    return ServedCalls(now.requests - then.requests, now.answers - then.answers)


def most_at_once(intervals: Sequence[tuple[float, float]]) -> int:
    """Return how many of ``intervals``, each a begin and an end, overlap at most."""
    edges = [(begin, 1) for begin, _ in intervals] + [(end, -1) for _, end in intervals]
    most = running = 0
    for _, change in sorted(edges, key=lambda each: (each[0], -each[1])):
        running += change
        most = max(most, running)
    return most


def medians(rounds: Sequence[RoundFigures]) -> RoundFigures:
    """Return the median of each figure, and the greatest of those that are maxima."""
    return RoundFigures(
        tokens_per_s=median(each.tokens_per_s for each in rounds),
        us_per_token={
            role: median(each.us_per_token[role] for each in rounds)
            for role in rounds[0].us_per_token
        },
        us_per_call={
            role: _median(each.us_per_call[role] for each in rounds)
            for role in rounds[0].us_per_call
        },
        messages_per_token=median(each.messages_per_token for each in rounds),
        pauses=Pauses(
            p50=median(each.pauses.p50 for each in rounds),
            p99=median(each.pauses.p99 for each in rounds),
            longest=max(each.pauses.longest for each in rounds),
        ),
        at_once=max(each.at_once for each in rounds),
        resident_kb=max(each.resident_kb for each in rounds),
        floor_us_per_message=median(each.floor_us_per_message for each in rounds),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return median(known) if known else None


def _used_us(before: Counters, after: Counters, role: Role) -> float:
    return (after.processor_s[role] - before.processor_s[role]) * 1e6

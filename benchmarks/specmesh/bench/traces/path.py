"""What answers waited for: medians over many, by service, and the orchestrator's own in detail."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from specmesh.bench.traces.core_use import CoreUse
from specmesh.traces.analysis.path_parts import PathActivity, Stretch, by_service
from specmesh.traces.analysis.stats import Percentiles
from specmesh.traces.trace import Trace

ORCHESTRATOR = "orchestrator"


@dataclass(frozen=True, slots=True)
class ServicePart:
    """What a service did on the critical path; the share of the answer's time, 0 to 1, is the
    median over all answers."""

    service: str
    part: PathActivity
    p50_ms: float
    p50_share: float


@dataclass(frozen=True, slots=True)
class PathFindings:
    """Over ``num_answers`` complete traces."""

    num_answers: int
    num_incomplete: int
    answers: Percentiles
    orchestrator_p50_share: float
    """The median share of the orchestrator's own time on the critical path."""
    orchestrator_p90_share: float
    orchestrator_core_p50_share: float
    """The median share of what it waited there for a core, which is no part of its own time."""
    orchestrator_spans: dict[str, float]
    """Its own time by the name of the span: the mean share of the answer's time."""
    longest_ms: float
    """The longest stretch of its own time, in all answers."""
    orchestrator: CoreUse | None
    """Its use of cores, on the critical path or not."""
    parts: tuple[ServicePart, ...]
    """The largest first."""


def path_findings(traces: Sequence[Trace], orchestrator: CoreUse | None) -> PathFindings:
    """Over ``traces``, of which at least one is complete."""
    whole = [trace for trace in traces if not trace.gaps]
    paths = [trace.path for trace in whole]
    lengths = [trace.root.duration_ms for trace in whole]
    own = [list(_orchestrators(path, PathActivity.OWN)) for path in paths]
    starved = [sum(each.ms for each in _orchestrators(path, PathActivity.CORE)) for path in paths]
    shares = [sum(each.ms for each in o) / ms for o, ms in zip(own, lengths, strict=True)]
    spread = Percentiles.of(shares)
    by_span: dict[str, float] = defaultdict(float)
    for stretches, ms in zip(own, lengths, strict=True):
        for each in stretches:
            by_span[each.name] += each.ms / ms / len(whole)
    return PathFindings(
        num_answers=len(whole),
        num_incomplete=len(traces) - len(whole),
        answers=Percentiles.of(lengths),
        orchestrator_p50_share=spread.p50_ms,
        orchestrator_p90_share=spread.p90_ms,
        orchestrator_core_p50_share=median(
            waited / ms for waited, ms in zip(starved, lengths, strict=True)
        ),
        orchestrator_spans=dict(sorted(by_span.items(), key=lambda item: -item[1])),
        longest_ms=max((each.ms for stretches in own for each in stretches), default=0.0),
        orchestrator=orchestrator,
        parts=tuple(_parts(paths, lengths)),
    )


def _orchestrators(path: Iterable[Stretch], part: PathActivity) -> Iterable[Stretch]:
    return (
        each
        for each in path
        if each.part is part and each.node.service == f"specmesh-{ORCHESTRATOR}"
    )


def _parts(paths: Sequence[Sequence[Stretch]], lengths: Sequence[float]) -> list[ServicePart]:
    times = [by_service(path) for path in paths]
    found = [
        ServicePart(
            *key,
            median(each.get(key, 0.0) for each in times),
            median(each.get(key, 0.0) / ms for each, ms in zip(times, lengths, strict=True)),
        )
        for key in {key for each in times for key in each}
    ]
    return sorted(found, key=lambda part: -part.p50_share)

"""The time that answers waited for: medians over many, by service, and the orchestrator's own in
detail."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from specmesh.bench.traces.core_use import CoreUse
from specmesh.traces.analysis.cancellation import StopTimes, cancellations, stop_times
from specmesh.traces.analysis.path_parts import PathActivity, Stretch, by_service
from specmesh.traces.analysis.stats import Percentiles
from specmesh.traces.trace import Trace

ORCHESTRATOR = "orchestrator"


@dataclass(frozen=True, slots=True)
class ServicePart:
    """An activity of a service on the critical path. Its share of the answer's time, 0 to 1, is the
    median over all answers."""

    service: str
    part: PathActivity
    p50_ms: float
    p50_share: float


@dataclass(frozen=True, slots=True)
class PathFindings:
    """The findings over ``num_answers`` complete traces."""

    num_answers: int
    num_incomplete: int
    answers: Percentiles
    orchestrator_p50_share: float
    """Median share of the orchestrator's own time on the critical path."""
    orchestrator_p90_share: float
    orchestrator_core_p50_share: float
    """Median share of its waits for a core there, which are not part of its own time."""
    orchestrator_spans: dict[str, float]
    """Its own time by name of span, as the mean share of the answer's time."""
    longest_ms: float
    """Longest stretch of its own time, in all answers."""
    orchestrator: CoreUse | None
    """Its use of cores, on or off the critical path."""
    stops: StopTimes | None
    """The time from a rejection until the last server had stopped working on what it made useless;
    None if nothing was cancelled."""
    parts: tuple[ServicePart, ...]
    """Activities, the largest first."""


def path_findings(traces: Sequence[Trace], orchestrator: CoreUse | None) -> PathFindings:
    """Return the findings over ``traces``, at least one of which must be complete."""
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
        stops=stop_times(cancellations(span for trace in traces for span in trace.spans)),
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

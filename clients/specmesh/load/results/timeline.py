"""The timeline of a run, second by second."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from specmesh.load.results.distributions import ms
from specmesh.load.results.histograms import percentile_of
from specmesh.load.results.report import Second
from specmesh.load.transports.observation import Observation, RequestOutcome


def timeline(observations: Sequence[Observation]) -> list[Second]:
    """Return all seconds from the start to the last end, with all requests, measured or not."""
    if not observations:
        return []
    due = defaultdict[int, list[Observation]](list)
    ended = defaultdict[int, list[Observation]](list)
    for seen in observations:
        due[int(seen.due_s)].append(seen)
        ended[int(seen.ended_s)].append(seen)
    found, under_way = [], 0
    for second in range(max(ended) + 1):
        under_way += len(due[second]) - len(ended[second])
        found.append(_second(second, due[second], ended[second], under_way))
    return found


def _second(
    number: int, due: Sequence[Observation], ended: Sequence[Observation], under_way: int
) -> Second:
    ttfts = [seen.ttft_s for seen in due if seen.ttft_s is not None]
    e2es = [seen.e2e_s for seen in due if seen.outcome is RequestOutcome.ANSWERED]
    outcomes = [seen.outcome for seen in ended]
    answers = [seen for seen in ended if seen.outcome is RequestOutcome.ANSWERED]
    return Second(
        t_s=number,
        due=len(due),
        answered=len(answers),
        failed=outcomes.count(RequestOutcome.FAILED),
        output_tokens=sum(seen.num_output_tokens for seen in answers),
        under_way=under_way,
        ttft_p50_ms=_percentile_ms(ttfts, 50),
        ttft_p99_ms=_percentile_ms(ttfts, 99),
        e2e_p50_ms=_percentile_ms(e2es, 50),
    )


def _percentile_ms(seconds: Sequence[float], percent: float) -> float | None:
    return ms(percentile_of(seconds, percent)) if seconds else None

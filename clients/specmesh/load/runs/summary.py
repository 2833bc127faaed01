"""The summary of a run: its result, computed from the observations of the generators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import fmean

from specmesh.load.generators.fleet import FleetSeen
from specmesh.load.results.distributions import distribution, ms, of_histogram
from specmesh.load.results.histograms import Histogram
from specmesh.load.results.objectives import Objectives
from specmesh.load.results.report import (
    Counts,
    GeneratorProcess,
    GeneratorResult,
    Goodput,
    ReportedLatencies,
    Requests,
    Result,
    ServerLoad,
    SpeculationTotals,
    Throughput,
    TracedRequest,
    VariationResult,
)
from specmesh.load.results.timeline import timeline
from specmesh.load.runs.bottleneck import cpu_share, reasons
from specmesh.load.runs.measured_time import MeasuredTime, measured_time
from specmesh.load.transports.observation import Observation, RequestOutcome
from specmesh.load.transports.transport import OUT_OF_DESCRIPTORS
from specmesh.load.workload.plan import RunPhase, Workload

MAX_LISTED = 20_000
"""Maximum number of answers whose latencies the report lists one by one."""


def summarise(
    workload: Workload,
    seen: FleetSeen,
    objectives: Objectives | None,
    servers: Sequence[ServerLoad] = (),
    num_slowest: int = 0,
) -> Result:
    """Compute the result; it names ``num_slowest`` of the slowest and as many failed requests."""
    extent = workload.extent
    measured = [each for each in seen.observations if extent.phase(each.due_s) is RunPhase.MEASURED]
    span = measured_time(workload, seen)
    from_s, until_s = span.from_s, span.until_s
    ended = [each for each in _answered(seen.observations) if from_s <= each.ended_s <= until_s]
    slowest = sorted(measured, key=lambda each: each.e2e_s, reverse=True)
    failed = [each for each in measured if each.outcome is RequestOutcome.FAILED]
    num_chunks = sum(seen.chunks.sizes.values())
    num_in_chunks = sum(size * count for size, count in seen.chunks.sizes.items())
    return Result(
        began=datetime.fromtimestamp(seen.began_unix_s, UTC).isoformat(timespec="milliseconds"),
        measured_from_s=round(from_s, 6),
        measured_until_s=round(until_s, 6),
        due_until_s=round(span.due_until_s, 6),
        interrupted=seen.interrupted,
        counts=_counts(measured),
        errors=dict(Counter(each.reason for each in failed).most_common()),
        throughput=_throughput(len(measured), ended, span),
        latency=_latencies(measured),
        inter_chunk_ms=of_histogram(seen.chunks.gaps),
        inter_token_ms=of_histogram(seen.chunks.token_gaps),
        mean_inter_token_ms=_mean_inter_token_ms(measured),
        tokens_per_chunk={str(size): n for size, n in sorted(seen.chunks.sizes.items())},
        mean_tokens_per_chunk=round(num_in_chunks / num_chunks, 4) if num_chunks else None,
        goodput=None if objectives is None else _goodput(objectives, measured, ended, span.took_s),
        speculation=_speculation(measured),
        variations=_variations(workload, measured),
        generator=_generator(seen, measured, from_s, until_s),
        servers=servers,
        timeline=timeline(seen.observations),
        slowest=[_traced(each) for each in slowest[:num_slowest]],
        failed=[_traced(each) for each in failed[:num_slowest]],
        requests=_requests(measured),
    )


def _answered(observations: Sequence[Observation]) -> list[Observation]:
    return [each for each in observations if each.outcome is RequestOutcome.ANSWERED]


def _counts(observations: Sequence[Observation]) -> Counts:
    outcomes = Counter(each.outcome for each in observations)
    return Counts(
        due=len(observations),
        answered=outcomes[RequestOutcome.ANSWERED],
        failed=outcomes[RequestOutcome.FAILED],
        cancelled=outcomes[RequestOutcome.CANCELLED],
        resumed=sum(each.num_resumes > 0 for each in observations),
    )


def _latencies(observations: Sequence[Observation]) -> ReportedLatencies:
    whole = _answered(observations)
    begun = [each for each in observations if each.outcome is not RequestOutcome.FAILED]
    return ReportedLatencies(
        ttft_ms=distribution([each.ttft_s for each in begun if each.ttft_s is not None]),
        tpot_ms=distribution([each.tpot_s for each in whole if each.tpot_s is not None]),
        e2e_ms=distribution([each.e2e_s for each in whole]),
    )


def _mean_inter_token_ms(observations: Sequence[Observation]) -> float | None:
    counted = [
        (each.last_s - each.first_s, each.num_output_tokens - 1)
        for each in _answered(observations)
        if each.is_counted and each.first_s is not None and each.last_s is not None
    ]
    num_tokens = sum(num_later for _, num_later in counted if num_later > 0)
    took_s = sum(between_s for between_s, num_later in counted if num_later > 0)
    return ms(took_s / num_tokens) if num_tokens else None


def _throughput(num_due: int, ended: Sequence[Observation], span: MeasuredTime) -> Throughput:
    took_s = span.took_s
    prompts = [each.num_prompt_tokens for each in ended if each.num_prompt_tokens is not None]
    outputs = [each.num_output_tokens for each in ended]
    return Throughput(
        offered_per_s=round(num_due / span.due_s, 6),
        answered_per_s=round(len(ended) / took_s, 6),
        output_tokens_per_s=round(sum(outputs) / took_s, 6),
        prompt_tokens_per_s=round(sum(prompts) / took_s, 6) if prompts else None,
        mean_output_tokens=round(fmean(outputs), 3) if outputs else None,
        mean_prompt_tokens=round(fmean(prompts), 3) if prompts else None,
    )


def _goodput(
    objectives: Objectives,
    measured: Sequence[Observation],
    ended: Sequence[Observation],
    took_s: float,
) -> Goodput:
    asked = [each for each in measured if each.outcome is not RequestOutcome.CANCELLED]
    good = sum(map(objectives.met_by, asked))
    bounds = (
        ("ttft", objectives.ttft_s),
        ("tpot", objectives.tpot_s),
        ("e2e", objectives.e2e_s),
    )
    return Goodput(
        objectives_ms={name: ms(bound) for name, bound in bounds if bound is not None},
        share=round(good / len(asked), 6) if asked else None,
        per_s=round(sum(map(objectives.met_by, ended)) / took_s, 6),
    )


def _speculation(observations: Sequence[Observation]) -> SpeculationTotals | None:
    works = [(each.work, each.num_output_tokens) for each in observations if each.work is not None]
    tokens = sum(num_tokens for _, num_tokens in works)
    if not tokens:
        return None
    verified = sum(work.num_verified_tokens for work, _ in works)
    accepted = sum(work.num_accepted_tokens for work, _ in works)
    return SpeculationTotals(
        acceptance=round(accepted / verified, 4) if verified else None,
        wasted_per_token=round(sum(work.num_wasted_tokens for work, _ in works) / tokens, 4),
        target_calls_per_token=round(sum(work.num_verify_calls for work, _ in works) / tokens, 4),
        target_tokens_per_token=round(sum(work.num_target_tokens for work, _ in works) / tokens, 4),
    )


def _variations(workload: Workload, measured: Sequence[Observation]) -> list[VariationResult]:
    if len(workload.variations) == 1:
        return []
    return [
        VariationResult(
            name=variation.name,
            counts=_counts(own),
            latency=_latencies(own),
            speculation=_speculation(own),
        )
        for number, variation in enumerate(workload.variations)
        for own in [[each for each in measured if each.variation == number]]
    ]


def _generator(
    seen: FleetSeen, measured: Sequence[Observation], from_s: float, until_s: float
) -> GeneratorResult:
    lags = [max(0.0, each.sent_s - each.due_s) for each in measured]
    processes = []
    for number, busy in enumerate(seen.busy):
        own = [lag for lag, each in zip(lags, measured, strict=True) if each.part == number]
        processes.append(
            GeneratorProcess(
                requests=len(own),
                lag_p99_ms=ms(Histogram.of(own).percentile(99)),
                cpu_share=round(cpu_share(busy, from_s, until_s), 4),
            )
        )
    lag = distribution(lags)
    without = sum(each.reason == OUT_OF_DESCRIPTORS for each in measured)
    return GeneratorResult(
        lag_ms=lag,
        processes=processes,
        bottleneck=reasons(processes, lag.p99 / 1e3 if lag else 0.0, without),
    )


def _traced(seen: Observation) -> TracedRequest:
    return TracedRequest(
        trace_id=seen.trace_id,
        conversation=seen.conversation,
        turn=seen.turn,
        t_s=round(seen.due_s, 6),
        e2e_ms=ms(seen.e2e_s),
        ttft_ms=None if seen.ttft_s is None else ms(seen.ttft_s),
        outcome=seen.outcome.value,
        reason=seen.reason,
    )


def _requests(measured: Sequence[Observation]) -> Requests:
    whole = _answered(measured)
    every = max(1, -(-len(whole) // MAX_LISTED))
    listed = whole[::every]
    return Requests(
        every=every,
        due_s=[round(each.due_s, 6) for each in listed],
        ttft_ms=[None if each.ttft_s is None else ms(each.ttft_s) for each in listed],
        tpot_ms=[None if each.tpot_s is None else ms(each.tpot_s) for each in listed],
        e2e_ms=[ms(each.e2e_s) for each in listed],
        output_tokens=[each.num_output_tokens for each in listed],
    )

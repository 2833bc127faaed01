"""What a run, a sweep or a search found: the JSON that ``--json`` writes. docs/load.md explains it.

Field names have their units. A change that takes a field away, or gives it another meaning, counts
``SCHEMA`` up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SCHEMA = "specmesh.load/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyDistribution:
    """Of times, in milliseconds. ``cdf`` has pairs of a time and the share of those up to it;
    ``hdr`` is the whole histogram, in HdrHistogram's V2 format."""

    count: int
    mean: float
    sd: float
    min: float
    max: float
    p50: float
    p90: float
    p95: float
    p99: float
    p99_9: float
    cdf: Sequence[tuple[float, float]]
    hdr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedLatencies:
    """Counted from when a request was due; None where nothing was seen."""

    ttft_ms: LatencyDistribution | None
    """To the first token, of requests that were not refused or broken."""
    tpot_ms: LatencyDistribution | None
    """(e2e − TTFT) / (tokens − 1), of answers with two tokens or more."""
    e2e_ms: LatencyDistribution | None
    """To the end, of answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Requests that were due while it was measured."""

    due: int
    answered: int
    failed: int
    cancelled: int
    resumed: int
    """Answers whose stream broke and was carried on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """In the measured time, by when requests were due, and when answers ended."""

    offered_per_s: float
    answered_per_s: float
    output_tokens_per_s: float
    prompt_tokens_per_s: float | None
    mean_output_tokens: float | None
    mean_prompt_tokens: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Answers that met all objectives."""

    objectives_ms: Mapping[str, float]
    share: float
    """Of the requests that were due in the measured time and not cancelled."""
    per_s: float
    """Of the answers that ended in the measured time, as in ``Throughput.answered_per_s``, which
    it never exceeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationTotals:
    """What the answers cost the mesh, as its statistics say; ratios of sums."""

    acceptance: float | None
    """Accepted over verified draft tokens; None without drafts."""
    wasted_per_token: float
    """Tokens drafted in vain, for each token of the answers."""
    target_calls_per_token: float
    target_tokens_per_token: float
    """Positions that the target was asked for, likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariationResult:
    """The requests of one variation of a mix."""

    name: str
    counts: Counts
    latency: ReportedLatencies
    speculation: SpeculationTotals | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Second:
    """A second of the run, ``t_s`` after its start; latencies are of the requests due in it."""

    t_s: int
    due: int
    answered: int
    failed: int
    output_tokens: int
    under_way: int
    """Requests at its end."""
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    e2e_p50_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorProcess:
    """One process: ``cpu_share`` of a core that it used while it was measured."""

    requests: int
    lag_p99_ms: float
    cpu_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorResult:
    """How well the load was made. ``lag_ms``: how much later than due requests were sent."""

    lag_ms: LatencyDistribution | None
    processes: Sequence[GeneratorProcess]
    bottleneck: Sequence[str]
    """Why the generator, and not the server, may be what was measured; empty if it was not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSample:
    """What a process told at one moment, ``t_s`` after the start. None is what it does not tell."""

    t_s: float
    cpu_cores: float | None
    """Since the sample before."""
    forward_share: float | None
    """Of the time since then in which a forward ran."""
    queue_depth: float | None
    waiting: float | None
    """Answers that wait to begin."""
    resident_bytes: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLoad:
    """A process that was scraped, while it was measured."""

    address: str
    role: str
    cpu_cores: float | None
    forward_share: float | None
    queue_mean_ms: float | None
    """Time of its calls from arrival to the first forward."""
    max_queue_depth: float | None
    max_waiting: float | None
    samples: Sequence[ServerSample]


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRequest:
    """A request to look at: ``specmesh trace show TRACE_ID``."""

    trace_id: str
    conversation: int
    turn: int
    t_s: float
    e2e_ms: float
    ttft_ms: float | None
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Measured answers in columns, in the order in which they were due, for ``compare`` and
    scatter plots. If there are more than some thousands, every so many-th: ``every``."""

    every: int
    due_s: Sequence[float]
    ttft_ms: Sequence[float | None]
    tpot_ms: Sequence[float | None]
    e2e_ms: Sequence[float]
    output_tokens: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one run found."""

    began: str
    """The start, in ISO 8601."""
    measured_from_s: float
    measured_until_s: float
    interrupted: bool
    counts: Counts
    errors: Mapping[str, int]
    """Failures by reason."""
    throughput: Throughput
    latency: ReportedLatencies
    inter_chunk_ms: LatencyDistribution | None
    """From one chunk of an answer to its next: inter-token latency as vLLM counts it."""
    inter_token_ms: LatencyDistribution | None
    """The same, divided among the tokens of the next chunk, each of which counts: inter-token
    latency as SGLang counts it. None for servers that do not tell how many there are."""
    mean_inter_token_ms: float | None
    """(last chunk − first chunk) / (tokens − 1), both summed over the answers whose tokens the
    server counted, if only at their end. None if it counted those of no answer."""
    tokens_per_chunk: Mapping[str, int]
    """How many chunks there were of so many tokens; empty if the server does not tell."""
    mean_tokens_per_chunk: float | None
    goodput: Goodput | None
    speculation: SpeculationTotals | None
    """None for servers that do not tell."""
    variations: Sequence[VariationResult]
    """Empty if there is but one."""
    generator: GeneratorResult
    servers: Sequence[ServerLoad]
    timeline: Sequence[Second]
    slowest: Sequence[TracedRequest]
    failed: Sequence[TracedRequest]
    requests: Requests


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSetting:
    """What was run, on what."""

    command: str
    server: str
    model: str
    """The one asked for: by its name, or else the first that the server names."""
    chat: bool
    """Whether chats were sent, not texts."""
    seed: int
    processes: int
    workload: Mapping[str, Any]
    versions: Mapping[str, str]
    machine: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """Of ``specmesh load run``."""

    schema: str = SCHEMA
    kind: str = "run"
    setting: RunSetting
    result: Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One run of a sweep or a search. ``changed`` is what it has of its own, ``saturated`` why the
    server could not keep up, empty if it could."""

    rate: float
    changed: Mapping[str, str]
    setting: RunSetting
    saturated: str
    meets: bool | None
    """Whether the objectives were met; None if there are none."""
    result: Result


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """Of ``specmesh load sweep``."""

    schema: str = SCHEMA
    kind: str = "sweep"
    setting: RunSetting
    points: Sequence[Point]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReport:
    """Of ``specmesh load search``. ``highest_rate`` met the objectives, None if none did;
    ``lowest_missed_rate`` did not."""

    schema: str = SCHEMA
    kind: str = "search"
    setting: RunSetting
    share: float
    """Of the requests, that must meet the objectives."""
    highest_rate: float | None
    lowest_missed_rate: float | None
    points: Sequence[Point]

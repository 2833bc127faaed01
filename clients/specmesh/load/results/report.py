"""The report of a run, sweep or search: the JSON that ``--json`` writes. docs/load.md explains it.

Field names include units. ``SCHEMA`` is incremented when a field is removed or changes its meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specmesh.load.results.distributions import LatencyDistribution

SCHEMA = "specmesh.load/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedLatencies:
    """Latencies, counted from when a request was due; None if there are none."""

    ttft_ms: LatencyDistribution | None
    """Time to first token, of requests that did not fail."""
    tpot_ms: LatencyDistribution | None
    """(e2e − TTFT) / (tokens − 1), of answers with at least two tokens."""
    e2e_ms: LatencyDistribution | None
    """Time to the end, of complete answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The number of requests that were due in the measured time, by outcome."""

    due: int
    answered: int
    failed: int
    cancelled: int
    resumed: int
    """Answers whose stream broke and was resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Throughput in the measured time, of requests due and of answers that ended in it."""

    offered_per_s: float
    answered_per_s: float
    output_tokens_per_s: float
    prompt_tokens_per_s: float | None
    mean_output_tokens: float | None
    mean_prompt_tokens: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """The answers that met all objectives."""

    objectives_ms: Mapping[str, float]
    share: float | None
    """Share of the requests that were due in the measured time and not cancelled; None if there
    were none."""
    per_s: float
    """Rate of such answers that ended in the measured time; never above
    ``Throughput.answered_per_s``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationTotals:
    """The cost of the answers, from the mesh's statistics, as ratios of sums."""

    acceptance: float | None
    """Accepted over verified draft tokens; None if nothing was drafted."""
    wasted_per_token: float
    """Wasted draft tokens per output token."""
    target_calls_per_token: float
    target_tokens_per_token: float
    """Positions that the target computed, per output token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariationResult:
    """The requests of one variation of a mix."""

    name: str
    counts: Counts
    latency: ReportedLatencies
    speculation: SpeculationTotals | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Second:
    """A second of the run, ``t_s`` after its start; latencies are those of requests due in it."""

    t_s: int
    due: int
    answered: int
    failed: int
    output_tokens: int
    under_way: int
    """Requests under way at its end."""
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    e2e_p50_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorProcess:
    """One generator process; ``cpu_share`` is the share of a core that it used in the measured
    time."""

    requests: int
    lag_p99_ms: float
    cpu_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorResult:
    """The quality of the generated load. ``lag_ms`` is how long after they were due requests were
    sent."""

    lag_ms: LatencyDistribution | None
    processes: Sequence[GeneratorProcess]
    bottleneck: Sequence[str]
    """Reasons why the generator may have been the bottleneck instead of the server; empty if it was
    not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSample:
    """Metrics of a process ``t_s`` after the start; None if it lacks a metric."""

    t_s: float
    cpu_cores: float | None
    """Mean since the previous sample."""
    forward_share: float | None
    """Share of the time since the previous sample in which a forward ran."""
    queue_depth: float | None
    waiting: float | None
    """Requests that wait for their answer to begin."""
    resident_bytes: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLoad:
    """The load of a scraped process in the measured time."""

    address: str
    role: str
    cpu_cores: float | None
    forward_share: float | None
    queue_mean_ms: float | None
    """Mean time of its calls from arrival to the first forward."""
    max_queue_depth: float | None
    max_waiting: float | None
    samples: Sequence[ServerSample]


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRequest:
    """A request to inspect with ``specmesh trace show TRACE_ID``."""

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
    """The measured answers in columns, ordered by when they were due, for ``compare`` and scatter
    plots. If there are too many, only one in ``every`` is listed."""

    every: int
    due_s: Sequence[float]
    ttft_ms: Sequence[float | None]
    tpot_ms: Sequence[float | None]
    e2e_ms: Sequence[float]
    output_tokens: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one run."""

    began: str
    """The start, in ISO 8601."""
    measured_from_s: float
    measured_until_s: float
    due_until_s: float
    """The end of the part of the measured time in which requests were due. It is before the end if
    a number of requests or a trace ended an open loop, whose last answers then ended alone."""
    interrupted: bool
    counts: Counts
    errors: Mapping[str, int]
    """Failures by reason."""
    throughput: Throughput
    latency: ReportedLatencies
    inter_chunk_ms: LatencyDistribution | None
    """Time from one chunk of a request to the next, also of those that were cancelled or failed:
    inter-token latency as vLLM defines it."""
    inter_token_ms: LatencyDistribution | None
    """The same, divided by the tokens of the later chunk, each of which counts: inter-token latency
    as SGLang defines it. None if the server does not count tokens."""
    mean_inter_token_ms: float | None
    """(last chunk − first chunk) / (tokens − 1), both summed over the answers whose tokens the
    server counted, if only at their end. None if it counted no answer's."""
    tokens_per_chunk: Mapping[str, int]
    """Number of chunks by their number of tokens; empty if the server does not count tokens."""
    mean_tokens_per_chunk: float | None
    goodput: Goodput | None
    speculation: SpeculationTotals | None
    """None if the server reports no such statistics."""
    variations: Sequence[VariationResult]
    """Empty if there is only one."""
    generator: GeneratorResult
    servers: Sequence[ServerLoad]
    timeline: Sequence[Second]
    slowest: Sequence[TracedRequest]
    failed: Sequence[TracedRequest]
    requests: Requests


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSetting:
    """The settings of a run, and the server and machine."""

    command: str
    server: str
    model: str
    """The requested model: the one named in the command, or the first that the server lists."""
    chat: bool
    """True if chats were sent instead of plain prompts."""
    seed: int
    processes: int
    workload: Mapping[str, Any]
    versions: Mapping[str, str]
    machine: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The report of ``specmesh load run``."""

    schema: str = SCHEMA
    kind: str = "run"
    setting: RunSetting
    result: Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One run of a sweep or a search. ``changed`` has the settings that are varied, ``saturated``
    the reason why the server could not keep up, empty if it could."""

    rate: float
    changed: Mapping[str, str]
    setting: RunSetting
    saturated: str
    meets: bool | None
    """True if the objectives were met; None if there are none, or no requests to judge by."""
    result: Result


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """The report of ``specmesh load sweep``."""

    schema: str = SCHEMA
    kind: str = "sweep"
    setting: RunSetting
    points: Sequence[Point]
    failure: str = ""
    """Why a run could not be made, which ended the sweep; empty if none failed."""
    interrupted: bool = False
    """True if Ctrl-C ended the sweep before its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReport:
    """The report of ``specmesh load search``. ``highest_rate`` met the objectives (None if no rate
    did), ``lowest_missed_rate`` did not."""

    schema: str = SCHEMA
    kind: str = "search"
    setting: RunSetting
    share: float
    """Share of the requests that must meet the objectives."""
    highest_rate: float | None
    lowest_missed_rate: float | None
    points: Sequence[Point]
    failure: str = ""
    """Why a run could not be made, which ended the search; empty if none failed."""
    interrupted: bool = False
    """True if Ctrl-C ended the search before its end."""

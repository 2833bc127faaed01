"""Metrics of one request, recorded however it ends."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

import grpc
from opentelemetry import metrics

from specmesh.decoding.errors import InvalidField
from specmesh.orchestrator.request_stats import RequestStats
from specmesh.serving.errors import ServiceError, to_status
from specmesh.serving.telemetry import ERROR_TYPE

_meter = metrics.get_meter("specmesh.orchestrator")
# Names, attributes and buckets are those of the OpenTelemetry GenAI conventions.
_duration = _meter.create_histogram(
    "gen_ai.server.request.duration",
    unit="s",
    description="from a request's arrival to its end, by error.type if it failed",
    explicit_bucket_boundaries_advisory=(
        *(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64),
        *(1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
    ),
)
_time_to_first_token = _meter.create_histogram(
    "gen_ai.server.time_to_first_token",
    unit="s",
    description="from a request's arrival to its first new token, if it says one",
    explicit_bucket_boundaries_advisory=(
        *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1),
        *(0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    ),
)
_time_per_token = _meter.create_histogram(
    "gen_ai.server.time_per_output_token",
    unit="s",
    description="time of each new token after the first, of requests that succeeded",
    explicit_bucket_boundaries_advisory=(
        *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
    ),
)
_drafted = _meter.create_counter(
    "specmesh.spec_decode.num_draft_tokens", "{token}", "draft tokens that were verified"
)
_accepted = _meter.create_counter(
    "specmesh.spec_decode.num_accepted_tokens", "{token}", "draft tokens that were accepted"
)
_wasted = _meter.create_counter(
    "specmesh.spec_decode.num_wasted_tokens",
    "{token}",
    "tokens drafted in vain: rejected, cancelled or cut off",
)
_unchecked = _meter.create_counter(
    "specmesh.filter.num_unchecked_tokens", "{token}", "draft tokens said without the target"
)
_verified = _meter.create_counter(
    "specmesh.spec_decode.num_verify_calls", "{call}", "verifications that were answered"
)

ROUNDING = 0.01
"""gRPC may report to a server up to this share more time than its client set."""


class RequestMetrics:
    """Metrics of one Generate or Resume, from its arrival until this context manager is left.

    They are recorded exactly once. Only new tokens count: not those that a resumed answer replays
    or that its client has. ``deadline`` is by the event loop's clock.
    """

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.stats = RequestStats()
        self.attributes = {
            "gen_ai.operation.name": "text_completion",
            "gen_ai.provider.name": "specmesh",
        }
        """Metric attributes, by the GenAI conventions; the model is added once it is known."""
        self.first_token_ms = 0.0
        """Time from the arrival to the first new token; 0 before that."""
        self._now = asyncio.get_running_loop().time
        self._arrived = self._now()
        self._num_new = 0
        self._ended = False

    @property
    def elapsed_ms(self) -> float:
        """Time since the arrival."""
        return (self._now() - self._arrived) * 1e3

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._ended:
            self._end(self.elapsed_ms, {} if error is None else {ERROR_TYPE: self._type(error)})

    def sent(self, num_new: int) -> None:
        """Record that ``num_new`` new tokens are sent to the client."""
        if num_new and not self._num_new:
            self.first_token_ms = self.elapsed_ms
            _time_to_first_token.record(self.first_token_ms / 1e3, self.attributes)
        self._num_new += num_new

    def succeeded(self) -> float:
        """Record a complete answer, even if its last event is lost. Returns the duration in ms."""
        duration_ms = self.elapsed_ms
        if self._num_new > 1:
            rest_s = (duration_ms - self.first_token_ms) / 1e3
            _time_per_token.record(rest_s / (self._num_new - 1), self.attributes)
        self._end(duration_ms, {})
        return duration_ms

    def _end(self, duration_ms: float, failure: dict[str, str]) -> None:
        self._ended = True
        _duration.record(duration_ms / 1e3, self.attributes | failure)
        _drafted.add(self.stats.num_verified_tokens)
        _accepted.add(self.stats.num_accepted_tokens)
        _wasted.add(self.stats.num_wasted_tokens)
        _unchecked.add(self.stats.num_unchecked_tokens)
        _verified.add(self.stats.num_verify_calls)

    def _type(self, error: BaseException) -> str:
        """Name of the status that the client sees."""
        if isinstance(error, ServiceError | InvalidField):
            return to_status(error).code.name
        if not isinstance(error, asyncio.CancelledError | GeneratorExit):
            return grpc.StatusCode.INTERNAL.name
        # gRPC ends a call that runs out of time just as one that its client cancels.
        remaining_s = self.deadline - self._now()
        late = remaining_s <= ROUNDING * (self.deadline - self._arrived)
        return (grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED).name

"""The choice of traces to record, made where a trace begins.

A span costs about 0.1 ms of processor time. A mesh with little traffic can afford to record every
answer; under load, the rate limit bounds the cost and still records some traces of every second.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.environment_variables import OTEL_TRACES_SAMPLER, OTEL_TRACES_SAMPLER_ARG
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes

from specmesh.serving.telemetry.exporters import InvalidTelemetry

RATE_LIMITED = "parentbased_rate_limited"
"""The value of ``OTEL_TRACES_SAMPLER`` for `RateLimited`, applied to spans without a parent. Its
argument is the number of traces per second."""

BURST_SECONDS = 10.0
"""Traces of a burst: as many as this time allows on average."""


def sampler() -> Sampler | None:
    """Return the sampler that the environment asks for; None leaves it to the OpenTelemetry SDK.

    Raises `InvalidTelemetry`.
    """
    if os.environ.get(OTEL_TRACES_SAMPLER, "").lower() != RATE_LIMITED:
        return None
    argument = os.environ.get(OTEL_TRACES_SAMPLER_ARG, "1")
    try:
        rate = float(argument)
    except ValueError:
        rate = math.nan
    if not 0 < rate < math.inf:
        raise InvalidTelemetry(
            f"{OTEL_TRACES_SAMPLER_ARG}={argument}: it must be a positive rate (traces per second)"
        )
    return ParentBased(RateLimited(rate))


class RateLimited(Sampler):
    """Records at most ``per_second`` traces per second on average, and `BURST_SECONDS` of them in
    a burst, of each name of a first span: calls that a client repeats, such as ListModels, do not
    use up the traces of answers. ``clock`` returns seconds."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._most = max(1.0, per_second * BURST_SECONDS)
        self._allowances: dict[str, tuple[float, float]] = {}
        """The rest for each method, and the time at which it was computed."""
        self._lock = threading.Lock()

    def should_sample(
        self,
        parent_context: Context | None,  # noqa: ARG002
        trace_id: int,  # noqa: ARG002
        name: str,
        kind: SpanKind | None = None,  # noqa: ARG002
        attributes: Attributes | None = None,
        links: Sequence[Link] | None = None,  # noqa: ARG002
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """Record and sample the trace if the allowance of ``name`` holds one more."""
        if not self._take(name):
            return SamplingResult(Decision.DROP, trace_state=trace_state)
        return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes, trace_state)

    def get_description(self) -> str:
        """Return the sampler's name and rate."""
        return f"RateLimited{{{self._per_second}}}"

    def _take(self, name: str) -> bool:
        with self._lock:
            now = self._clock()
            left, at = self._allowances.get(name, (self._most, now))
            left = min(self._most, left + (now - at) * self._per_second)
            is_enough = left >= 1
            self._allowances[name] = (left - is_enough, now)
            return is_enough

"""The outcome of a request, reported once: in the metrics, in the log and on its span."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from opentelemetry import trace

from specmesh.orchestrator.driver.stats import RequestStats
from specmesh.serving import conventions as names
from specmesh.serving import metrics
from specmesh.serving.caller import identity

log = logging.getLogger(__name__)

_duration = metrics.REQUEST_DURATION.instrument()
_first_token = metrics.TIME_TO_FIRST_TOKEN.instrument()
_per_token = metrics.TIME_PER_OUTPUT_TOKEN.instrument()
_usage = metrics.TOKEN_USAGE.instrument()
_requests = metrics.REQUESTS.instrument()
_resumed = metrics.RESUMED.instrument()
_drafted = metrics.DRAFTED_TOKENS.instrument()
_verified = metrics.VERIFIED_TOKENS.instrument()
_accepted = metrics.ACCEPTED_TOKENS.instrument()
_wasted = metrics.WASTED_TOKENS.instrument()
_unchecked = metrics.UNCHECKED_TOKENS.instrument()
_target = metrics.TARGET_TOKENS.instrument()
_verify_calls = metrics.VERIFY_CALLS.instrument()

OK = "OK"

Attributes = dict[str, str | int]


@dataclass(slots=True)
class RequestReport:
    """The outcome of a request; None stands for what was unknown when it ended."""

    method: str
    """Name of the RPC without its service, such as "Generate"."""
    attributes: Attributes
    """Attributes of all its metrics, by the GenAI conventions."""
    stats: RequestStats = field(default_factory=RequestStats)
    status: str = OK
    """Name of the gRPC status that the client sees."""
    reason: str | None = None
    """Reason in the error's ErrorInfo."""
    finish_reason: str | None = None
    model: str | None = None
    strategy: str | None = None
    session_id: str | None = None
    epoch: int | None = None
    resumed_from: str | None = None
    """Source of the tokens that an earlier stream had sent: "store" or "client"."""
    num_prompt: int | None = None
    num_cached: int | None = None
    """Prompt tokens that a replica had in its KV cache."""
    num_new: int = 0
    """Tokens that neither the store nor the client had."""
    first_token_s: float | None = None
    """Time from the arrival to the first of these."""
    duration_s: float = 0.0

    @property
    def acceptance(self) -> float | None:
        """Share of the draft tokens judged by the target that it accepted."""
        judged = self.stats.num_verified_tokens
        return self.stats.num_accepted_tokens / judged if judged else None

    def tell(self) -> None:
        """Record the metrics, describe the request's span, which must be current, and log it."""
        self._record()
        span = trace.get_current_span()
        if span.is_recording():
            span.set_attributes(_known(self._span_attributes()))
        log.info("request", extra=self._fields())

    def _record(self) -> None:
        failure = {} if self.status == OK else {names.ERROR_TYPE: self.status}
        attributes = self.attributes | failure
        _duration.record(self.duration_s, attributes)
        if self.first_token_s is not None:
            _first_token.record(self.first_token_s, attributes)
            if self.num_new > 1:
                rest_s = self.duration_s - self.first_token_s
                _per_token.record(rest_s / (self.num_new - 1), attributes)
        if self.num_prompt is not None:
            _usage.record(self.num_prompt, self.attributes | {names.TOKEN_TYPE: "input"})
            _usage.record(self.num_new, self.attributes | {names.TOKEN_TYPE: "output"})
        whose = _known(
            {
                names.OPERATION: self.attributes[names.OPERATION],
                names.REQUEST_MODEL: self.model,
                names.STRATEGY: self.strategy,
            }
        )
        status = _known({names.RPC_STATUS: self.status, names.REASON: self.reason})
        _requests.add(1, whose | status)
        if self.resumed_from is not None:
            _resumed.add(1, whose | {names.RESUMED_FROM: self.resumed_from})
        if self.strategy is not None:
            self._record_speculation(whose)

    def _record_speculation(self, whose: Attributes) -> None:
        _drafted.add(self.stats.num_drafted_tokens, whose)
        _verified.add(self.stats.num_verified_tokens, whose)
        _accepted.add(self.stats.num_accepted_tokens, whose)
        _wasted.add(self.stats.num_wasted_tokens, whose)
        _unchecked.add(self.stats.num_unchecked_tokens, whose)
        _target.add(self.stats.num_target_tokens, whose)
        _verify_calls.add(self.stats.num_verify_calls, whose)

    def _span_attributes(self) -> dict[str, object]:
        return {
            names.RESPONSE_ID: self.session_id,
            names.RESPONSE_MODEL: self.model,
            names.FINISH_REASONS: [self.finish_reason] if self.finish_reason else None,
            names.CACHED_INPUT_TOKENS: self.num_cached,
            names.OUTPUT_TOKENS: self.num_new,
            names.ACCEPTANCE: self.acceptance,
            names.EXPLANATION: self.stats.explanation or None,
            names.RESUMED_FROM: self.resumed_from,
            names.REASON: self.reason,
        }

    def _fields(self) -> dict[str, object]:
        """Return the fields of the log line, the same for every request so that they can be
        queried."""
        return {
            "method": self.method,
            "status": self.status,
            "reason": self.reason,
            "finish_reason": self.finish_reason,
            "identity": identity() or None,
            "session": self.session_id,
            "epoch": self.epoch,
            "resumed_from": self.resumed_from,
            "model": self.model,
            "strategy": self.strategy,
            "num_prompt_tokens": self.num_prompt,
            "num_cached_tokens": self.num_cached,
            "num_output_tokens": self.num_new,
            "time_to_first_token_ms": _milliseconds(self.first_token_s),
            "duration_ms": _milliseconds(self.duration_s),
            "acceptance": None if self.acceptance is None else round(self.acceptance, 3),
            "num_verify_calls": self.stats.num_verify_calls,
            "num_wasted_tokens": self.stats.num_wasted_tokens,
        }


def _known(fields: dict[str, object]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)

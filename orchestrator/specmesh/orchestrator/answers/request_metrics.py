"""Measures one request from its arrival to its end, however it ends."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from types import TracebackType
from typing import Self

import grpc

from specmesh.decoding.errors import InvalidField
from specmesh.orchestrator.answers.request_report import RequestReport
from specmesh.orchestrator.answers.session_log import SessionLog
from specmesh.orchestrator.replicas.target import Target
from specmesh.orchestrator.requests.plan import RequestPlan
from specmesh.orchestrator.strategies.commands import StopReason
from specmesh.serving import conventions as names
from specmesh.serving.errors import ServiceError, to_status
from specmesh.serving.rpc.listening import server_attributes

ROUNDING = 0.01
"""Share by which the time that gRPC reports to a server may exceed what its client set."""

_REPORTED = frozenset({"Generate", "Complete", "Resume", "Score"})


def report_early_refusal(method: str, error: ServiceError) -> None:
    """Report a request that is refused with ``error`` before anybody could look at it. Calls of
    other methods than those whose requests are reported are none."""
    name = method.rpartition("/")[2]
    if name in _REPORTED:
        with suppress(ServiceError), RequestMetrics(name, math.inf):
            raise error


class RequestMetrics:
    """Metrics of one request to ``method``, from its arrival until this context manager is left.

    It is reported exactly once. Only new tokens count: not those that a resumed answer replays or
    that its client has. ``deadline`` is by the event loop's clock.
    """

    def __init__(self, method: str, deadline: float) -> None:
        self.deadline = deadline
        self._report = RequestReport(
            method,
            {
                names.OPERATION: names.TEXT_COMPLETION,
                names.PROVIDER: names.SPECMESH,
                **server_attributes(),
            },
        )
        self.stats = self._report.stats
        """The mesh's work for the answer."""
        self._now = asyncio.get_running_loop().time
        self._arrived = self._now()
        self._ended = False
        self._session: SessionLog | None = None

    @property
    def num_output_tokens(self) -> int:
        """New tokens that were sent to the client."""
        return self._report.num_new

    @property
    def num_target_tokens(self) -> int:
        """Nodes that were sent to verifiers."""
        return self.stats.num_target_tokens

    @property
    def attributes(self) -> dict[str, str | int]:
        """Metric attributes by the GenAI conventions, including the model once it is known."""
        return self._report.attributes

    @property
    def first_token_ms(self) -> float:
        """Time from the arrival to the first new token; 0 before that."""
        return (self._report.first_token_s or 0.0) * 1e3

    @property
    def elapsed_ms(self) -> float:
        """Time since the arrival."""
        return self._elapsed_s * 1e3

    @property
    def _elapsed_s(self) -> float:
        return self._now() - self._arrived

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._ended:
            if error is not None:
                self._report.status, self._report.reason = self._failure(error)
            self._end()

    def chat(self) -> None:
        """Record that the prompt is a chat."""
        self.attributes[names.OPERATION] = names.CHAT

    def asked_for(self, session_id: str) -> None:
        """Record the session that a client names, whether it exists or not."""
        self._report.session_id = session_id[:64]

    def planned(self, plan: RequestPlan, target: Target) -> None:
        """Record the plan of the request, before any work."""
        self.checked(len(plan.prompt), target)
        self._report.strategy = self.attributes[names.STRATEGY] = plan.strategy

    def checked(self, num_prompt: int, target: Target) -> None:
        """Record the model that the request is for, and the number of tokens of its prompt."""
        self._report.model, self._report.num_prompt = target.info.name, num_prompt
        # Only now: names from a request that was not checked would be an unbounded set of labels.
        for name in (names.REQUEST_MODEL, names.RESPONSE_MODEL):
            self.attributes[name] = target.info.name

    def answering(self, session: SessionLog, resumed_from: str | None) -> None:
        """Record the session of the answer and, if an earlier stream has sent its first tokens,
        where they come from: "store" or "client"."""
        self._session = session
        self._report.resumed_from = resumed_from

    def sent(self, num_new: int) -> None:
        """Record that ``num_new`` new tokens are sent to the client."""
        if num_new and not self._report.num_new:
            self._report.first_token_s = self._elapsed_s
        self._report.num_new += num_new

    def cached(self, num_tokens: int) -> None:
        """Record how many prompt tokens the first verification found in a KV cache."""
        self._report.num_cached = num_tokens

    def succeeded(self, reason: StopReason | None) -> float:
        """Record a complete answer, even if its last event is lost; return the duration in ms. A
        request that generates nothing has no ``reason`` to end."""
        self._report.finish_reason = reason.name.lower() if reason else None
        self._end()
        return self._report.duration_s * 1e3

    def _end(self) -> None:
        self._ended = True
        if self._session is not None:  # its id is settled only when the answer begins
            self._report.session_id = self._session.session.session_id
            self._report.epoch = self._session.epoch
        self._report.duration_s = self._elapsed_s
        self._report.tell()

    def _failure(self, error: BaseException) -> tuple[str, str | None]:
        """Return the name of the status that the client sees, and the reason in it, if any."""
        if isinstance(error, ServiceError):
            return to_status(error).code.name, error.reason
        if isinstance(error, InvalidField):
            return grpc.StatusCode.INVALID_ARGUMENT.name, "INVALID_FIELD"
        if not isinstance(error, asyncio.CancelledError | GeneratorExit):
            return grpc.StatusCode.INTERNAL.name, "INTERNAL"
        # gRPC ends a call that runs out of time exactly as one that its client cancels.
        remaining_s = self.deadline - self._now()
        late = remaining_s <= ROUNDING * (self.deadline - self._arrived)
        return (grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED).name, None

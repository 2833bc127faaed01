"""The calls of one request to the confidence service.

An assessment that fails or is late is not retried: the strategy then has the target verify every
token, which is always correct.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import grpc.aio
from opentelemetry import trace
from opentelemetry.context import Context

from specmesh.decoding.errors import InvalidField
from specmesh.mesh.v1alpha1 import confidence_pb2
from specmesh.orchestrator.replicas.calls.command_context import CommandContext
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.transport.exchange import exchange
from specmesh.orchestrator.replicas.transport.peer import Peer
from specmesh.orchestrator.strategies.commands import Assess
from specmesh.orchestrator.strategies.events import Assessed, Released
from specmesh.serving import conventions as names
from specmesh.serving.codec.filter_options import write_filter_options
from specmesh.serving.codec.wire import write_position
from specmesh.serving.errors import UnavailableStatus, invalid_field
from specmesh.serving.metrics import FILTER_FALLBACKS
from specmesh.serving.telemetry.pipeline import ClientSpan, tracer

ASSESS_SECONDS = 0.5
"""Timeout of an assessment, its wait in the request cache included. A healthy service always takes
less, and waiting longer would delay every draft."""
METHOD = "specmesh.mesh.v1alpha1.ConfidenceService/Assess"

Deliver: TypeAlias = Callable[[Assessed | Released], None]
"""Receives the decisions on a draft, then its release."""

_fallbacks = FILTER_FALLBACKS.instrument()


class ConfidenceCalls:
    """Requests assessments."""

    def __init__(self, request: RequestContext) -> None:
        self._request = request
        self._pool = request.mesh.confidence
        self._options = write_filter_options(request.filter_options)

    async def assess(self, command: Assess, context: CommandContext, deliver: Deliver) -> None:
        """Pass the decisions on draft tokens to ``deliver``.

        Raises ``AioRpcError`` or ``ServiceError``, and ``InvalidField`` if the service refuses the
        request's filter options.
        """
        span = tracer.start_span(names.ASSESS_SPAN, context=context.parent)
        span.set_attribute(names.FILTER_POSITIONS, len(command.positions))
        span.set_attributes(context.cause.attributes())
        try:
            with self._pool.reserve(holds={}) as peer, self._judged(peer):
                parent = trace.set_span_in_context(span, context.parent)
                await self._ask(peer, command, parent, deliver)
        except Exception as error:
            # Without an assessment no draft token is kept unchecked: the target verifies them all.
            span.set_attribute(names.FILTER_FALLBACK, value=True)
            _fallbacks.add(1)
            raise _refusal(error) or error from error
        finally:
            span.end()

    @contextmanager
    def _judged(self, peer: Peer) -> Iterator[None]:
        """Record the outcome of the call for outlier ejection."""
        began = asyncio.get_running_loop().time()
        try:
            yield
        except Exception as error:
            if _refusal(error) is None:
                self._pool.failed(peer, began)
            raise
        self._pool.answered(peer, began)

    async def _ask(self, peer: Peer, command: Assess, parent: Context, deliver: Deliver) -> None:
        with ClientSpan(METHOD, peer.address, parent=parent) as call:
            message = confidence_pb2.AssessEachRequest(
                request=self._message(command), trace_context=call.carrier
            )
            now = asyncio.get_running_loop().time()
            deadline = min(self._request.deadline, now + ASSESS_SECONDS)
            is_complete = False

            def take(part: confidence_pb2.AssessEachResponse) -> float | None:
                nonlocal is_complete
                if part.last:
                    if not is_complete:  # the strategy would wait for ever
                        raise _bad("it ended without all decisions and their release")
                    return None
                if part.response.HasField("release"):
                    is_complete = True
                    released = part.response.release
                    call.span.set_attribute(names.FILTER_RELEASED, released.batch_size)
                    deliver(Released(command.task))
                else:
                    assessed = _assessed(command, part.response.assessment)
                    is_complete = all(assessed.keeps)
                    deliver(assessed)
                return deadline

            with exchange(peer.assessments, message, deadline) as sent:
                await sent.each(take)

    def _message(self, command: Assess) -> confidence_pb2.AssessRequest:
        latencies = self._request.mesh.latencies
        return confidence_pb2.AssessRequest(
            positions=map(write_position, command.positions),
            options=self._options,
            session_id=self._request.prefix.session_id,
            verifier_load=latencies.target_load.value or 0.0,
            verification_ms=(latencies.target_s.value or 0.0) * 1e3,
        )


def _assessed(command: Assess, assessment: confidence_pb2.Assessment) -> Assessed:
    keeps = tuple(decision.keep for decision in assessment.decisions)
    if len(keeps) != len(command.positions):
        raise _bad(f"{len(keeps)} decisions on {len(command.positions)} positions")
    return Assessed(command.task, keeps)


def _bad(problem: str) -> UnavailableStatus:
    """Return the error of an assessment that makes no sense."""
    return UnavailableStatus("BAD_ASSESSMENT", problem)


def _refusal(error: Exception) -> InvalidField | None:
    """Return the filter option that the service refused; None if the client is not at fault."""
    if not isinstance(error, grpc.aio.AioRpcError):
        return None
    wrong = invalid_field(error)
    if wrong is None or not wrong.field.startswith("options"):
        return None
    return InvalidField(f"speculation.filter{wrong.field.removeprefix('options')}", wrong.reason)

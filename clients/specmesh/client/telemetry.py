"""The client's span: one ``specmesh.generate`` for each answer, resumes included.

Names follow the OpenTelemetry GenAI conventions where these have one. Without an OpenTelemetry
SDK in the process, this module does nothing.
"""

from __future__ import annotations

import time

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from specmesh.client.answers.values import GenerationResult
from specmesh.v1 import generation_pb2 as pb

_tracer = trace.get_tracer("specmesh.client")
_propagator = TraceContextTextMapPropagator()


class GenerateSpan:
    """A CLIENT span. It is never made the current one: a generator may be closed in another
    context, which could not reset it."""

    def __init__(self, request: pb.GenerateRequest) -> None:
        self._span = _tracer.start_span("specmesh.generate", kind=trace.SpanKind.CLIENT)
        self._started_s = time.monotonic()
        self._first_chunk_seen = False
        if self._span.is_recording():
            self._span.set_attributes(_request_attributes(request))

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the call metadata that makes the server's spans children of this one."""
        return callers_metadata(trace.set_span_in_context(self._span))

    def calling(self, address: str) -> None:
        """Record that a call goes to ``address`` (host:port)."""
        host, _, port = address.rpartition(":")
        self._span.set_attribute("server.address", host)
        if port.isdecimal():
            self._span.set_attribute("server.port", int(port))

    def chunk(self) -> None:
        """Record the time of the first chunk; later ones change nothing."""
        if not self._first_chunk_seen:
            self._first_chunk_seen = True
            self._span.set_attribute(
                "gen_ai.response.time_to_first_chunk", time.monotonic() - self._started_s
            )

    def finished(self, result: GenerationResult) -> None:
        """Record the complete answer."""
        if self._span.is_recording():
            self._span.set_attributes(_result_attributes(result))

    def failed(self, error: BaseException) -> None:
        """Record the error that ended the answer."""
        self._span.set_attribute("error.type", type(error).__name__)
        self._span.set_status(trace.StatusCode.ERROR, str(error))

    def cancelled(self) -> None:
        """Record that the caller cancelled; that is not an error, so the status stays unset."""
        self._span.set_attribute("specmesh.cancelled", True)

    def end(self) -> None:
        """End the span; must be called exactly once."""
        self._span.end()


def callers_metadata(context: Context | None = None) -> tuple[tuple[str, str], ...]:
    """Return the call metadata that makes the server's spans children of the span in ``context``,
    by default the current one; empty if there is no span."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, context=context)
    return tuple(carrier.items())


def _request_attributes(request: pb.GenerateRequest) -> dict[str, AttributeValue]:
    """Return what the request asks for, without its texts, stop strings among them: everybody who
    may read the traces would see them."""
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "specmesh",
        "gen_ai.request.stream": True,
    }
    if request.model:
        attributes["gen_ai.request.model"] = request.model
    if request.stopping.HasField("max_tokens"):
        attributes["gen_ai.request.max_tokens"] = request.stopping.max_tokens
    for field, value in request.sampling.ListFields():
        if not (field.enum_type or field.message_type or field.is_repeated):
            attributes[f"gen_ai.request.{field.name}"] = value
    return attributes


def _result_attributes(result: GenerationResult) -> dict[str, AttributeValue]:
    return {
        "gen_ai.response.id": result.session_id,
        "gen_ai.response.model": result.model,
        "gen_ai.response.finish_reasons": [result.finish_reason.value],
        "gen_ai.usage.input_tokens": result.stats.num_prompt_tokens,
        "gen_ai.usage.output_tokens": len(result.token_ids),
        "specmesh.strategy": result.strategy,
        "specmesh.resumes": result.num_resumes,
    }

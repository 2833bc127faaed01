"""ConfidenceService: it turns a message into domain values, makes one decision, may wait, and
answers."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import grpc.aio

from specmesh.confidence.assessor import Assessment, Assessor
from specmesh.confidence.metrics import record_assessment
from specmesh.confidence.request_cache import RequestCache
from specmesh.decoding.errors import InvalidField
from specmesh.mesh.v1alpha1 import confidence_pb2, confidence_pb2_grpc
from specmesh.serving.codec.filter_options import read_filter_options
from specmesh.serving.codec.wire import read_positions
from specmesh.serving.rpc.interceptors import exchange
from specmesh.serving.telemetry.pipeline import annotate

Context = grpc.aio.ServicerContext[confidence_pb2.AssessRequest, confidence_pb2.AssessResponse]
EachContext = grpc.aio.ServicerContext[
    confidence_pb2.AssessEachRequest, confidence_pb2.AssessEachResponse
]


class ConfidenceServicer(confidence_pb2_grpc.ConfidenceServiceServicer):
    """Answers Assess; a cancelled call stops waiting."""

    def __init__(self, assessor: Assessor, cache: RequestCache) -> None:
        self._assessor = assessor
        self._cache = cache

    async def Assess(  # noqa: N802
        self,
        request: confidence_pb2.AssessRequest,
        context: Context | EachContext,  # noqa: ARG002
    ) -> AsyncGenerator[confidence_pb2.AssessResponse, None]:
        """Yield the assessment and then, if tokens are escalated, their release."""
        assessment = self._assess(request)
        first = confidence_pb2.AssessResponse(assessment=_message(assessment))
        if not assessment.num_escalated:
            self._cache.see(request.session_id)
            yield first
            return
        confidence = assessment.scores[assessment.num_kept]
        verification_s = request.verification_ms / 1e3
        # The wait begins while the first response is on its way.
        with self._cache.enter(request.session_id, confidence, verification_s) as ticket:
            yield first
            released = await ticket.released
        annotate(
            **{
                "filter.batch_size": released.batch_size,
                "filter.waited_ms": released.waited_ms,
            }
        )
        yield confidence_pb2.AssessResponse(
            release=confidence_pb2.Release(
                batch_size=released.batch_size, waited_ms=released.waited_ms
            )
        )

    async def AssessEach(  # noqa: N802
        self,
        request_iterator: AsyncIterator[confidence_pb2.AssessEachRequest],
        context: EachContext,
    ) -> AsyncIterator[confidence_pb2.AssessEachResponse]:
        """Answer each request of the call in turn, as ``Assess`` does."""
        async for message in request_iterator:
            async with (
                exchange(message.trace_context),
                aclosing(self.Assess(message.request, context)) as responses,
            ):
                async for response in responses:
                    yield confidence_pb2.AssessEachResponse(response=response)
            yield confidence_pb2.AssessEachResponse(last=True)

    def _assess(self, request: confidence_pb2.AssessRequest) -> Assessment:
        positions = read_positions(request.positions)
        options = read_filter_options(request.options)
        if not request.session_id:
            raise InvalidField("session_id", "must not be empty")
        # Written so that NaN is refused, too.
        if not 0 <= request.verifier_load <= 1:
            raise InvalidField("verifier_load", "must be in [0, 1]")
        if not 0 <= request.verification_ms < math.inf:
            raise InvalidField("verification_ms", "must be finite and not negative")
        try:
            assessment = self._assessor.assess(positions, options, request.verifier_load)
        except InvalidField as error:
            raise InvalidField(f"options.{error.field}", error.reason) from None
        counts = {"num_kept": assessment.num_kept, "num_escalated": assessment.num_escalated}
        record_assessment(
            assessment.scorer, assessment.threshold, num_positions=len(positions), **counts
        )
        annotate(
            **{
                "filter.kept": assessment.num_kept,
                "filter.escalated": assessment.num_escalated,
                "filter.threshold": assessment.threshold,
            }
        )
        return assessment


def _message(assessment: Assessment) -> confidence_pb2.Assessment:
    return confidence_pb2.Assessment(
        decisions=[
            confidence_pb2.Decision(keep=keep, score=score)
            for keep, score in zip(assessment.keeps, assessment.scores, strict=True)
        ],
        threshold=assessment.threshold,
    )

"""The thresholds of a sweep: the confidence service's own scores of some probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence

import grpc.aio

from specmesh.bench.filter.sweep import FilterSetting
from specmesh.mesh.v1alpha1 import confidence_pb2, confidence_pb2_grpc
from specmesh.v1 import speculation_pb2

SCORERS = ("log-probability", "calibrated")
PROBABILITIES = (0.25, 0.4, 0.55, 0.7, 0.82, 0.92, 0.98)
_CALL_SECONDS = 5.0


async def settings_at(address: str) -> list[FilterSetting]:
    """Return the settings by scorer; the first of each keeps all tokens, the last none.

    The thresholds in between are each scorer's scores of the same probabilities, so that scorers
    that rank positions alike keep the same share. Raises ``AioRpcError``.
    """
    settings = []
    async with grpc.aio.insecure_channel(address) as channel:
        service = confidence_pb2_grpc.ConfidenceServiceStub(channel)
        for scorer in SCORERS:
            finite = await _scores(service, scorer)
            settings += [FilterSetting(scorer, each) for each in (-math.inf, *finite, math.inf)]
    return settings


async def _scores(
    service: confidence_pb2_grpc.ConfidenceServiceAsyncStub, scorer: str
) -> Sequence[float]:
    request = confidence_pb2.AssessRequest(
        positions=[
            confidence_pb2.DraftPosition(token_ids=[0], probabilities=[each])
            for each in PROBABILITIES
        ],
        options=speculation_pb2.FilterOptions(scorer=scorer, threshold=-math.inf),
        session_id="specmesh-bench-filter",
    )
    async for response in service.Assess(request, timeout=_CALL_SECONDS):
        return [decision.score for decision in response.assessment.decisions]
    raise AssertionError("an assessment comes first")

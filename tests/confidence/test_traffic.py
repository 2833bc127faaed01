"""What is kept of a draft, after other sessions have had theirs assessed."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.confidence.test_service import CALL_S, asking, serve

from specmesh.decoding.predict.thresholds import ENOUGH
from specmesh.v1 import speculation_pb2

__all__ = ["serve"]

MINE = (0.9, 0.6, 0.4, 0.8)
LEARNING = {
    "escalation_rate": {"escalation_rate": 0.5},
    "follow_load": {"follow_load": {"lowest": 0.4, "highest": 0.6}},
    "the service's default": {},
}


async def kept_after(serve: Any, options: dict[str, Any], others: float) -> list[bool]:
    """Which of mine are, by a new service that was asked about drafts this sure before."""
    stub = await serve()
    for number in range(4):
        traffic = asking(*[others] * ENOUGH, session_id=f"other {number}", threshold=-math.inf)
        await stub.Assess(traffic, timeout=CALL_S).read()
    request = asking(*MINE, options=speculation_pb2.FilterOptions(**options))
    response = await stub.Assess(request, timeout=CALL_S).read()
    return [decision.keep for decision in response.assessment.decisions]


async def test_at_a_constant_threshold_other_sessions_change_nothing(serve):
    options = {"threshold": math.log(0.7)}
    for others in (0.1, 0.7, 0.99):
        assert await kept_after(serve, options, others) == [True, False, False, True]


@pytest.mark.parametrize("options", LEARNING.values(), ids=LEARNING)
async def test_a_share_is_one_of_all_sessions_tokens(serve, options):
    assert await kept_after(serve, options, 0.1) == [True, True, True, True]
    assert await kept_after(serve, options, 0.7) == [True, False, False, True]
    assert await kept_after(serve, options, 0.99) == [False, False, False, False]

"""ConfidenceService over gRPC."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import pytest
from tests.servers import running_server

from specmesh.confidence.__main__ import ConfidenceService, ConfidenceSettings
from specmesh.mesh.v1alpha1 import confidence_pb2, confidence_pb2_grpc
from specmesh.serving.errors import error_info, invalid_field
from specmesh.serving.startup import CannotStart
from specmesh.v1 import speculation_pb2

CALL_S = 20

CALIBRATION = """{"version": 2, "slope": 1.0, "bias": 0.0, "num_positions": 100}"""


def position(probability: float, **fields: Any) -> confidence_pb2.DraftPosition:
    return confidence_pb2.DraftPosition(
        **{"token_ids": [7], "probabilities": [probability], "entropy": 0.5} | fields
    )


def asking(
    *probabilities: float, session_id: str = "s", threshold: float = math.log(0.5), **fields: Any
) -> confidence_pb2.AssessRequest:
    options = speculation_pb2.FilterOptions(threshold=threshold)
    given = {
        "options": options,
        "positions": map(position, probabilities),
        "session_id": session_id,
    }
    return confidence_pb2.AssessRequest(**given | fields)


def each(request: confidence_pb2.AssessRequest) -> confidence_pb2.AssessEachRequest:
    return confidence_pb2.AssessEachRequest(request=request)


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[confidence_pb2_grpc.ConfidenceServiceStub]:
    configured = ConfidenceSettings(**settings)
    async with running_server(configured, ConfidenceService(configured)) as address:
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(address, options=options) as channel:
            yield confidence_pb2_grpc.ConfidenceServiceStub(channel)


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Any]]:
    async with AsyncExitStack() as stack:
        yield lambda **settings: stack.enter_async_context(serving(**settings))


async def test_each_token_gets_a_decision_and_the_target_is_asked_once_released(serve):
    stub = await serve()
    first, second = [
        response async for response in stub.Assess(asking(0.9, 0.4, 0.8), timeout=CALL_S)
    ]
    decisions = first.assessment.decisions
    assert [decision.keep for decision in decisions] == [True, False, True]
    assert [decision.score for decision in decisions] == pytest.approx(
        [math.log(0.9), math.log(0.4), math.log(0.8)]
    )
    assert first.assessment.threshold == pytest.approx(math.log(0.5))
    assert second.release.batch_size == 1
    assert 0 <= second.release.waited_ms < 1000


async def test_nothing_is_released_where_all_is_kept(serve):
    stub = await serve()
    responses = [response async for response in stub.Assess(asking(0.9, 0.8), timeout=CALL_S)]
    assert [response.WhichOneof("kind") for response in responses] == ["assessment"]


async def test_the_assessment_comes_before_the_wait_is_over(serve):
    stub = await serve(window_ms=100)
    await stub.Assess(asking(0.9, session_id="busy"), timeout=CALL_S).read()
    call = stub.Assess(asking(0.4), timeout=CALL_S)
    assert (await call.read()).HasField("assessment")
    release = (await call.read()).release
    assert release.batch_size == 1
    assert release.waited_ms >= 100


async def test_a_request_waits_no_longer_than_half_of_what_a_verification_takes(serve):
    stub = await serve(window_ms=100)
    await stub.Assess(asking(0.9, session_id="busy"), timeout=CALL_S).read()
    waited_ms = []
    for _ in range(3):
        call = stub.Assess(asking(0.4, verification_ms=10), timeout=CALL_S)
        await call.read()
        waited_ms.append((await call.read()).release.waited_ms)
    assert 5 <= min(waited_ms) < 100  # not all, for the machine may be busy


async def test_sessions_at_once_are_released_together(serve):
    stub = await serve(window_ms=100, max_batch=8)

    async def session(number: int) -> list[int]:
        call = stub.AssessEach(timeout=CALL_S)
        sizes = []
        for _ in range(5):
            await call.write(each(asking(0.4, session_id=f"s{number}")))
            parts = [await call.read() for _ in range(3)]
            assert [part.last for part in parts] == [False, False, True]
            sizes.append(parts[1].response.release.batch_size)
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        return sizes

    sizes = [size for each in await asyncio.gather(*map(session, range(8))) for size in each]
    assert sum(sizes) / len(sizes) > 4


async def test_cancelling_a_call_withdraws_its_request(serve):
    stub = await serve(window_ms=100, max_batch=3)
    for session_id in "abc":
        await stub.Assess(asking(0.9, session_id=session_id), timeout=CALL_S).read()
    cancelled = stub.Assess(asking(0.4, session_id="a"), timeout=CALL_S)
    await cancelled.read()
    cancelled.cancel()
    call = stub.Assess(asking(0.4, session_id="b"), timeout=CALL_S)
    await call.read()
    assert (await call.read()).release.batch_size == 1


async def test_the_services_own_rule_holds_where_a_request_has_none(serve):
    stub = await serve(threshold=math.log(0.7), scorer="log-probability")
    request = asking(0.8, 0.6)
    request.ClearField("options")
    response = await stub.Assess(request, timeout=CALL_S).read()
    assert [decision.keep for decision in response.assessment.decisions] == [True, False]


async def test_by_default_everything_is_escalated_until_enough_is_known(serve):
    stub = await serve()
    request = asking(0.99)
    request.ClearField("options")
    response = await stub.Assess(request, timeout=CALL_S).read()
    assert not response.assessment.decisions[0].keep
    assert response.assessment.threshold == math.inf


async def test_a_calibration_scores(serve, tmp_path):
    file = tmp_path / "calibration.json"
    file.write_text(CALIBRATION)
    stub = await serve(calibration=file, scorer="calibrated")
    response = await stub.Assess(asking(0.8, threshold=0.75), timeout=CALL_S).read()
    assert response.assessment.decisions[0].score == pytest.approx(0.8)
    assert response.assessment.decisions[0].keep


@pytest.mark.parametrize("text", [None, "{}", "nonsense"])
async def test_a_calibration_that_is_none_stops_the_start(tmp_path, text):
    file = tmp_path / "calibration.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(CannotStart, match=str(file)):
        async with serving(calibration=file):
            pass


WRONG = {
    "no_position": ({"positions": []}, "positions"),
    "257_positions": ({"positions": [position(0.5)] * 257}, "positions"),
    "no_token": (
        {"positions": [position(0.5), position(0.5, token_ids=[])]},
        "positions[1].token_ids",
    ),
    "fewer_probabilities": (
        {"positions": [position(0.5, probabilities=[])]},
        "positions[0].probabilities",
    ),
    "probability_0": ({"positions": [position(0.0)]}, "positions[0].probabilities"),
    "probability_above_1": ({"positions": [position(1.5)]}, "positions[0].probabilities"),
    "probability_nan": ({"positions": [position(math.nan)]}, "positions[0].probabilities"),
    "rising_probabilities": (
        {"positions": [position(0.1, token_ids=[7, 8], probabilities=[0.1, 0.2])]},
        "positions[0].probabilities",
    ),
    "entropy_nan": ({"positions": [position(0.5, entropy=math.nan)]}, "positions[0].entropy"),
    "entropy_negative": ({"positions": [position(0.5, entropy=-1)]}, "positions[0].entropy"),
    "no_session": ({"session_id": ""}, "session_id"),
    "load_nan": ({"verifier_load": math.nan}, "verifier_load"),
    "load_negative": ({"verifier_load": -0.1}, "verifier_load"),
    "verification_nan": ({"verification_ms": math.nan}, "verification_ms"),
    "verification_negative": ({"verification_ms": -1}, "verification_ms"),
    "verification_infinite": ({"verification_ms": math.inf}, "verification_ms"),
    "load_above_1": ({"verifier_load": 1.5}, "verifier_load"),
    "unknown_scorer": ({"options": {"scorer": "mood"}}, "options.scorer"),
    "calibrated_without_calibration": ({"options": {"scorer": "calibrated"}}, "options.scorer"),
    "threshold_nan": ({"options": {"threshold": math.nan}}, "options.threshold"),
    "rate_above_1": ({"options": {"escalation_rate": 1.1}}, "options.escalation_rate"),
    "bounds_crossed": (
        {"options": {"follow_load": {"lowest": 0.6, "highest": 0.5}}},
        "options.follow_load.lowest",
    ),
    "bounds_nan": (
        {"options": {"follow_load": {"lowest": 0.1, "highest": math.nan}}},
        "options.follow_load.highest",
    ),
}


@pytest.mark.parametrize(("wrong", "field"), WRONG.values(), ids=WRONG)
async def test_a_wrong_request_is_refused_by_field(serve, wrong, field):
    stub = await serve()
    open_call = stub.AssessEach(timeout=CALL_S)
    await open_call.write(each(asking(0.5, **wrong)))
    for call in (stub.Assess(asking(0.5, **wrong), timeout=CALL_S), open_call):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call.read()
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert invalid_field(refused.value).field == field
        assert error_info(refused.value).reason == "INVALID_FIELD"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"threshold": 0.5, "escalation_rate": 0.5}, "only one"),
        ({"threshold": math.nan}, "threshold"),
        ({"escalation_rate": 1.5}, "less than or equal to 1"),
        ({"follow_load": "0.5"}, "two numbers"),
        ({"follow_load": "0.5,0.1"}, "lowest"),
        ({"scorer": "mood"}, "must be one of"),
        ({"scorer": "calibrated"}, "--calibration"),
        ({"window_ms": 101}, "100"),
        ({"max_batch": 0}, "1"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ConfidenceSettings(**settings)

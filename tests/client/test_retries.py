"""A start that fails is made again, never twice done, and within bounds; hooks tell of it."""

import logging
import time

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from tests.client.conftest import (
    FakeOrchestrator,
    breaks_after,
    refuses,
    rest_of_answer,
    taken_at,
    whole_answer,
)

from specmesh.client import (
    AsyncClient,
    Client,
    Hooks,
    InvalidRequest,
    Overloaded,
    SpecmeshError,
    Unavailable,
    testing,
)
from specmesh.client.connections import recovery
from specmesh.client.testing import FakeMesh
from specmesh.v1 import errors_pb2

Code = grpc.StatusCode


def in_a_minute() -> RetryInfo:
    """The time at which a refused client should come again."""
    return RetryInfo(retry_delay=Duration(seconds=60))


def told():
    """Hooks, and what they were told."""
    retries, resumes, ends = [], [], []
    hooks = Hooks(on_retry=retries.append, on_resume=resumes.append, on_finish=ends.append)
    return hooks, retries, resumes, ends


def test_a_lone_target_that_is_lost_or_overloaded_is_asked_again():
    hooks, retries, _, _ = told()
    with FakeMesh() as mesh, Client(mesh.address, hooks=hooks) as client:
        mesh.fail(Code.UNAVAILABLE, "STARTING")
        mesh.fail(Code.RESOURCE_EXHAUSTED, "OVERLOADED", retry_after_s=0.25)
        mesh.fail(Code.RESOURCE_EXHAUSTED, "LIMIT_REACHED", retry_after_s=0.05)
        mesh.fail(Code.UNKNOWN)  # a proxy's
        mesh.answer("at last")
        assert client.complete("hello").text == "at last"
    assert [each.error.reason for each in retries] == [
        *("STARTING", "OVERLOADED", "LIMIT_REACHED", ""),
    ]
    assert retries[1].pause_s >= 0.25
    assert all(each.pause_s > 0 for each in retries)
    assert {each.target for each in retries} == {mesh.address}


def test_a_lone_target_that_is_lost_is_asked_again_when_it_says():
    hooks, retries, _, _ = told()
    with FakeMesh() as mesh, Client(mesh.address, hooks=hooks) as client:
        mesh.fail(Code.UNAVAILABLE, retry_after_s=0.25)  # a proxy's
        mesh.answer("at last")
        assert client.complete("hello").text == "at last"
    assert [each.pause_s for each in retries] == [0.25]


def test_each_try_has_the_request_id_of_the_first_and_other_answers_have_others():
    with FakeMesh() as mesh, Client(mesh.address) as client:
        for _ in range(2):
            mesh.fail(Code.UNAVAILABLE, "STARTING")
            mesh.answer("at last")
            client.complete("hello")
        mesh.answer("one")
        client.complete("hello", request_id="mine")
    ids = [each.request_id for each in mesh.requests]
    assert ids[0] == ids[1] != ids[2] == ids[3]
    assert ids[4] == "mine"
    assert all(len(each) == 36 for each in ids[:4])


def test_each_try_has_an_epoch_of_its_own_so_that_one_that_hung_cannot_take_the_answer_back():
    with FakeMesh() as mesh, Client(mesh.address) as client:
        mesh.fail(Code.UNAVAILABLE, "STARTING")
        mesh.fail(Code.UNAVAILABLE)
        mesh.answer("at last")
        client.complete("hello")
    assert [each.epoch for each in mesh.requests] == [1, 2, 3]


async def test_an_id_that_another_process_has_used_carries_its_answer_on_at_whatever_epoch(serve):
    starts = [taken_at(4), breaks_after(4, epoch=5)]
    fake = await serve(FakeOrchestrator(starts, [rest_of_answer(4, epoch=6)]))
    async with AsyncClient(fake.address) as client:
        await client.generate("hello", request_id="mine")
    assert [each.epoch for each in (*fake.requests, *fake.resumes)] == [1, 5, 6]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (Code.INVALID_ARGUMENT, "INVALID_FIELD"),
        (Code.NOT_FOUND, "MODEL_NOT_FOUND"),
        (Code.FAILED_PRECONDITION, "NO_FITTING_DRAFTER"),
        (Code.ALREADY_EXISTS, "REQUEST_ID_REUSED"),
        (Code.UNAUTHENTICATED, "UNAUTHENTICATED"),
        (Code.PERMISSION_DENIED, "WRONG_ROLE"),
        (Code.UNIMPLEMENTED, ""),
        (Code.RESOURCE_EXHAUSTED, ""),  # gRPC's own, of a message that is too large
        (Code.UNAVAILABLE, "MODEL_NOT_FOUND"),  # the reason counts
    ],
)
def test_what_would_fail_again_is_told_at_once(code, reason):
    with FakeMesh() as mesh, Client(mesh.address) as client:
        mesh.fail(code, reason)
        with pytest.raises(SpecmeshError):
            client.complete("hello")
    assert len(mesh.requests) == 1


def test_retries_are_bounded_by_number():
    with FakeMesh() as mesh, Client(mesh.address, max_retries=2) as client:
        for _ in range(4):
            mesh.fail(Code.RESOURCE_EXHAUSTED, "OVERLOADED", retry_after_s=0.01)
        with pytest.raises(Overloaded):
            client.complete("hello")
    assert len(mesh.requests) == 3


def test_a_pause_longer_than_the_time_left_is_not_begun():
    with FakeMesh() as mesh, Client(mesh.address) as client:
        mesh.fail(Code.RESOURCE_EXHAUSTED, "OVERLOADED", retry_after_s=60)
        began = time.monotonic()
        with pytest.raises(Overloaded) as caught:
            client.complete("hello", timeout_s=30)
    assert caught.value.retry_after_s == 60
    assert time.monotonic() - began < 20


async def test_targets_that_are_down_are_passed_over_without_a_pause_or_a_retry(serve):
    hooks, retries, _, _ = told()
    up = await serve(FakeOrchestrator([whole_answer]))
    down = ("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")
    async with AsyncClient(*down, up.address, max_retries=0, hooks=hooks) as client:
        await client.generate("hello")
    assert [each.pause_s for each in retries] == [0, 0, 0]


def test_other_calls_are_tried_again_too(monkeypatch):
    asked = []

    def sometimes(self, request, context):
        asked.append(request)
        if len(asked) < 3:
            context.abort(Code.UNAVAILABLE, "not yet")
        return original(self, request, context)

    original = testing._Tokenizer.Tokenize
    monkeypatch.setattr(testing._Tokenizer, "Tokenize", sometimes)
    with FakeMesh() as mesh, Client(mesh.address) as client:
        assert client.tokenize("hi") == (104, 105)
    assert len(asked) == 3


def test_every_declared_reason_is_followed_as_it_is_declared():
    for value in errors_pb2.ErrorReason.DESCRIPTOR.values[1:]:
        retry = value.GetOptions().Extensions[errors_pb2.error].retry
        error = SpecmeshError("", code=Code.UNKNOWN, reason=value.name[len("ERROR_REASON_") :])
        assert recovery.may_call_again(error) == (retry != errors_pb2.RETRY_NEVER), value.name


async def test_hooks_are_told_of_resumes_and_of_every_end(serve):
    hooks, retries, resumes, ends = told()
    refused = refuses(Code.INVALID_ARGUMENT, reason="INVALID_FIELD")
    fake = await serve(
        FakeOrchestrator([breaks_after(4), refused, whole_answer], [whole_answer_after_4])
    )
    async with AsyncClient(fake.address, hooks=hooks) as client:
        result = await client.generate("hello")
        with pytest.raises(InvalidRequest):
            await client.generate("hello")
        reading = aiter(client.generate("hello"))
        await anext(reading)
        await reading.aclose()
    assert retries == []
    assert [(each.session_id, each.num_broken) for each in resumes] == [("s-1", 1)]
    assert isinstance(resumes[0].error, Unavailable)
    assert ends[0].result is result
    assert isinstance(ends[1].error, InvalidRequest)
    assert (ends[2].result, ends[2].error) == (None, None)


async def whole_answer_after_4(context):
    async for event in whole_answer(context):
        if not event.HasField("chunk") or event.chunk.first_index >= 4:
            yield event


def test_a_hook_that_raises_is_logged_and_harms_nothing(caplog):
    def broken(_):
        raise RuntimeError("the user's own bug")

    with FakeMesh() as mesh, Client(mesh.address, hooks=Hooks(on_finish=broken)) as client:
        mesh.answer("fine")
        assert client.complete("hello").text == "fine"
    assert "the user's own bug" in caplog.text


def test_the_log_tells_of_breaks_and_of_ends(caplog):
    caplog.set_level(logging.DEBUG, "specmesh.client")
    with FakeMesh() as mesh, Client(mesh.address) as client:
        mesh.answer("a ", "b", breaks_after=1)
        client.complete("hello")
    lines = [(each.levelname, each.getMessage()) for each in caplog.records]
    assert ("DEBUG", f"channel to {mesh.address}") in lines
    assert ("DEBUG", "answer fake-1 ended: finished") in lines
    assert any(level == "WARNING" and "resuming in 0.00 s" in line for level, line in lines)


async def test_who_finds_no_room_asks_the_others_at_once(serve):
    hooks, retries, _, _ = told()
    full = refuses(Code.RESOURCE_EXHAUSTED, "full", "OVERLOADED", in_a_minute())
    fakes = [await serve(FakeOrchestrator([full])) for _ in range(2)]
    free = await serve(FakeOrchestrator([whole_answer]))
    targets = [each.address for each in (*fakes, free)]
    async with AsyncClient(*targets, max_retries=0, hooks=hooks) as client:
        await client.generate("hello")
    assert [each.pause_s for each in retries] == [0, 0]


@pytest.mark.parametrize(("reason", "num_asked"), [("OVERLOADED", 2), ("LIMIT_REACHED", 1)])
async def test_without_retries_nobody_waits_to_be_refused(serve, reason, num_asked):
    refused = refuses(Code.RESOURCE_EXHAUSTED, "full", reason, in_a_minute())
    fakes = [await serve(FakeOrchestrator([refused])) for _ in range(2)]
    async with AsyncClient(*(each.address for each in fakes), max_retries=0) as client:
        began = time.monotonic()
        with pytest.raises(SpecmeshError) as caught:
            await client.generate("hello")
    assert time.monotonic() - began < 30
    assert caught.value.reason == reason
    assert caught.value.retry_after_s == 60
    assert sum(len(each.requests) for each in fakes) == num_asked

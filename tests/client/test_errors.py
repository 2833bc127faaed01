"""Every status becomes one error of the tree, with what the server said and its cause."""

import pickle

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import BadRequest, RetryInfo
from tests.client.conftest import FakeOrchestrator, refuses

from specmesh import client as sdk
from specmesh.client import AsyncClient, FieldViolation
from specmesh.client.connections import status

Code = grpc.StatusCode


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (Code.CANCELLED, sdk.Cancelled),
        (Code.UNKNOWN, sdk.Unknown),
        (Code.INVALID_ARGUMENT, sdk.InvalidRequest),
        (Code.DEADLINE_EXCEEDED, sdk.DeadlineExceeded),
        (Code.NOT_FOUND, sdk.NotFound),
        (Code.ALREADY_EXISTS, sdk.AlreadyExists),
        (Code.PERMISSION_DENIED, sdk.PermissionDenied),
        (Code.RESOURCE_EXHAUSTED, sdk.ResourceExhausted),
        (Code.FAILED_PRECONDITION, sdk.FailedPrecondition),
        (Code.ABORTED, sdk.Aborted),
        (Code.OUT_OF_RANGE, sdk.OutOfRange),
        (Code.UNIMPLEMENTED, sdk.Unimplemented),
        (Code.INTERNAL, sdk.Internal),
        (Code.UNAVAILABLE, sdk.Unavailable),
        (Code.DATA_LOSS, sdk.DataLoss),
        (Code.UNAUTHENTICATED, sdk.Unauthenticated),
    ],
)
async def test_status_becomes_its_error_with_reason_and_cause(serve, code, expected):
    fake = await serve(FakeOrchestrator([refuses(code, "told you", "BECAUSE")]))
    async with AsyncClient(fake.address, max_retries=0) as client:
        with pytest.raises(sdk.SpecmeshError, match="told you") as caught:
            await client.generate("hello")
    assert type(caught.value) is expected
    assert (caught.value.code, caught.value.reason) == (code, "BECAUSE")
    assert isinstance(caught.value.__cause__, grpc.aio.AioRpcError)


def test_there_is_an_error_for_every_status():
    assert set(status._BY_STATUS) == set(Code) - {Code.OK}
    assert len(set(status._BY_STATUS.values())) == len(status._BY_STATUS)


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (Code.RESOURCE_EXHAUSTED, "OVERLOADED", sdk.Overloaded),
        (Code.RESOURCE_EXHAUSTED, "VERIFIERS_BUSY", sdk.Overloaded),
        (Code.RESOURCE_EXHAUSTED, "LIMIT_REACHED", sdk.LimitReached),
        (Code.ABORTED, "STALE_EPOCH", sdk.SessionTaken),
        (Code.ABORTED, "SESSION_CANCELLED", sdk.SessionCancelled),
        (Code.NOT_FOUND, "OVERLOADED", sdk.NotFound),
    ],
)
async def test_a_reason_narrows_the_error_of_its_status(serve, code, reason, expected):
    fake = await serve(FakeOrchestrator([refuses(code, "told you", reason)] * 2))
    async with AsyncClient(fake.address, max_retries=0) as client:
        with pytest.raises(expected) as caught:
            await client.generate("hello")
    assert type(caught.value) is expected


async def test_a_refused_request_names_its_fields(serve):
    violation = BadRequest.FieldViolation(field="sampling.top_p", description="above 1")
    details = BadRequest(field_violations=[violation])
    fake = await serve(
        FakeOrchestrator([refuses(Code.INVALID_ARGUMENT, "no", "INVALID_FIELD", details)])
    )
    async with AsyncClient(fake.address) as client:
        with pytest.raises(sdk.InvalidRequest) as caught:
            await client.generate("hello", top_p=2)
    assert caught.value.field_violations == (FieldViolation("sampling.top_p", "above 1"),)


def test_an_error_comes_whole_out_of_another_process():
    error = sdk.InvalidRequest(
        "no",
        code=Code.INVALID_ARGUMENT,
        reason="INVALID_FIELD",
        metadata={"field": "a"},
        retry_after_s=1.5,
    )
    error.field_violations = (FieldViolation("a", "above 1"),)
    sent = pickle.loads(pickle.dumps(error))  # as multiprocessing and Celery do
    assert (type(sent), str(sent), vars(sent)) == (type(error), "no", vars(error))


async def test_an_overloaded_mesh_says_when_to_come_back(serve):
    details = RetryInfo(retry_delay=Duration(nanos=250_000_000))
    fake = await serve(
        FakeOrchestrator([refuses(Code.RESOURCE_EXHAUSTED, "full", "OVERLOADED", details)])
    )
    async with AsyncClient(fake.address, max_retries=0) as client:
        with pytest.raises(sdk.Overloaded) as caught:
            await client.generate("hello")
    assert caught.value.retry_after_s == 0.25


async def test_a_status_without_or_with_unreadable_details_is_mapped_all_the_same(serve):
    async def bare(context):
        await context.abort(Code.NOT_FOUND, "no such model")
        yield

    async def garbled(context):
        context.set_trailing_metadata((("grpc-status-details-bin", b"\xff\xff"),))
        await context.abort(Code.NOT_FOUND, "no such model")
        yield

    fake = await serve(FakeOrchestrator([bare, garbled]))
    async with AsyncClient(fake.address) as client:
        for _ in range(2):
            with pytest.raises(sdk.NotFound, match="no such model") as caught:
                await client.generate("hello")
            assert caught.value.reason == ""


def test_every_error_is_one_of_the_tree():
    errors = [value for value in vars(sdk).values() if isinstance(value, type)]
    errors = [error for error in errors if issubclass(error, Exception)]
    assert len(errors) == 21
    assert all(issubclass(error, sdk.SpecmeshError) for error in errors)

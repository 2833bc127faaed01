"""Every status becomes one error of the tree, with what the server said and its cause."""

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import BadRequest, RetryInfo
from tests.client.conftest import FakeOrchestrator, refuses

from specmesh import client as sdk
from specmesh.client import Client, FieldViolation

Code = grpc.StatusCode


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (Code.INVALID_ARGUMENT, sdk.InvalidRequest),
        (Code.NOT_FOUND, sdk.NotFound),
        (Code.FAILED_PRECONDITION, sdk.FailedPrecondition),
        (Code.RESOURCE_EXHAUSTED, sdk.Overloaded),
        (Code.UNAVAILABLE, sdk.Unavailable),
        (Code.DEADLINE_EXCEEDED, sdk.DeadlineExceeded),
        (Code.ABORTED, sdk.SessionTaken),
        (Code.INTERNAL, sdk.Internal),
        (Code.UNIMPLEMENTED, sdk.Internal),
        (Code.CANCELLED, sdk.Internal),
        (Code.UNAUTHENTICATED, sdk.Internal),
    ],
)
async def test_status_becomes_its_error_with_reason_and_cause(serve, code, expected):
    fake = await serve(FakeOrchestrator([refuses(code, "told you", "BECAUSE")]))
    async with Client(fake.address) as client:
        with pytest.raises(sdk.SpecmeshError, match="told you") as caught:
            await client.generate("hello").text()
    assert type(caught.value) is expected
    assert (caught.value.code, caught.value.reason) == (code, "BECAUSE")
    assert isinstance(caught.value.__cause__, grpc.aio.AioRpcError)


async def test_a_refused_request_names_its_fields(serve):
    violation = BadRequest.FieldViolation(field="sampling.top_p", description="above 1")
    details = BadRequest(field_violations=[violation])
    fake = await serve(
        FakeOrchestrator([refuses(Code.INVALID_ARGUMENT, "no", "INVALID_FIELD", details)])
    )
    async with Client(fake.address) as client:
        with pytest.raises(sdk.InvalidRequest) as caught:
            await client.generate("hello", top_p=2).text()
    assert caught.value.field_violations == (FieldViolation("sampling.top_p", "above 1"),)


async def test_an_overloaded_mesh_says_when_to_come_back(serve):
    details = RetryInfo(retry_delay=Duration(nanos=250_000_000))
    fake = await serve(
        FakeOrchestrator([refuses(Code.RESOURCE_EXHAUSTED, "full", "QUEUE_FULL", details)])
    )
    async with Client(fake.address) as client:
        with pytest.raises(sdk.Overloaded) as caught:
            await client.generate("hello").text()
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
    async with Client(fake.address) as client:
        for _ in range(2):
            with pytest.raises(sdk.NotFound, match="no such model") as caught:
                await client.generate("hello").text()
            assert caught.value.reason == ""


def test_every_error_is_one_of_the_tree():
    errors = [value for value in vars(sdk).values() if isinstance(value, type)]
    errors = [error for error in errors if issubclass(error, Exception)]
    assert len(errors) == 9
    assert all(issubclass(error, sdk.SpecmeshError) for error in errors)

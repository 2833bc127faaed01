"""Fields with more entries than are allowed are refused before they cost more than their bytes."""

from __future__ import annotations

import tracemalloc

import grpc
import pytest
from tests.orchestrator.answers import collect
from tests.orchestrator.peers import Verifier

from specmesh.decoding.errors import InvalidField
from specmesh.orchestrator import servicer
from specmesh.serving.codec.wire import read_sampling
from specmesh.serving.errors import invalid_field
from specmesh.v1 import generation_pb2, sampling_pb2

MANY = 100_000
FIELDS = {
    "sampling.logit_bias": {"sampling": {"logit_bias": dict.fromkeys(range(MANY), 1.0)}},
    "sampling.banned_sequences": {"sampling": {"banned_sequences": [{}] * MANY}},
    "sampling.bad_words": {"sampling": {"bad_words": [""] * MANY}},
    "sampling.end_token_ids": {"sampling": {"end_token_ids": [1] * MANY}},
    "sampling.grammar.choice.texts": {"sampling": {"grammar": {"choice": {"texts": [""] * MANY}}}},
    "stopping.stop_strings": {"stopping": {"stop_strings": [""] * MANY}},
    "stopping.stop_token_ids": {"stopping": {"stop_token_ids": [1] * MANY}},
    "chat.messages": {"chat": {"messages": [{}] * MANY}},
    "chat.tools": {"chat": {"tools": [""] * MANY}},
    "chat.tool_choice.names": {"chat": {"tool_choice": {"names": [""] * MANY}}},
    "format.tool_names": {"format": {"tool_names": [""] * MANY}},
    "format.arguments": {"format": {"arguments": [{}] * MANY}},
}


def looked_at(*_: object) -> None:
    raise InvalidField("all", "are read before they are counted")


@pytest.mark.parametrize("field", FIELDS)
async def test_entries_are_counted_before_a_request_is_looked_at(
    connect, serve, monkeypatch, field
):
    monkeypatch.setattr(servicer, "named", looked_at)
    stub = await serve(await connect([Verifier()]))
    request = generation_pb2.GenerateRequest(request_id="a", **FIELDS[field])
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await collect(stub.Generate(request))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert invalid_field(refused.value).field == field


@pytest.mark.parametrize(
    "given",
    [
        {"logit_bias": dict.fromkeys(range(MANY), 1.0)},
        {"banned_token_ids": [1] * MANY},
        {"banned_sequences": [{}] * MANY},
        {"banned_sequences": [{"token_ids": [1] * MANY}]},
    ],
    ids=[*("logit_bias", "banned_token_ids", "banned_sequences", "banned_sequence")],
)
def test_a_replica_copies_no_entries_that_are_too_many(given):
    message = sampling_pb2.SamplingParameters(seed=1, **given)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidField):
            read_sampling(message)
        assert tracemalloc.get_traced_memory()[1] < MANY
    finally:
        tracemalloc.stop()

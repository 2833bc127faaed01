"""One line in the log for each request, with what became of it."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from tests.orchestrator.answers import NUM_TOKENS, alone, collect, refusal, request, resuming
from tests.orchestrator.peers import Drafter, Hold, Verifier, passing

from specmesh.orchestrator.answers.request_metrics import RequestMetrics
from specmesh.serving.caller import identified
from specmesh.serving.errors import ResourceExhaustedStatus
from specmesh.serving.process.logging import JsonFormatter
from specmesh.v1 import generation_pb2 as pb

FIELDS = {
    *("time", "level", "event", "role", "name"),
    *("method", "status", "reason", "finish_reason", "identity"),
    *("session", "epoch", "resumed_from", "model", "strategy"),
    *("num_prompt_tokens", "num_cached_tokens", "num_output_tokens"),
    *("time_to_first_token_ms", "duration_ms"),
    *("acceptance", "num_verify_calls", "num_wasted_tokens"),
}


class Lines(logging.Handler):
    """The lines about requests, as they go into the log."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter("orchestrator", "o-1"))
        self._lines: list[dict] = []
        self._news = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == "request":
            self._lines.append(json.loads(self.format(record)))
            self._news.set()

    async def next(self) -> dict:
        """The next line; each of them has the same fields."""
        while not self._lines:
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), 10)
        line = self._lines.pop(0)
        assert set(line) == FIELDS
        return line


@pytest.fixture
def lines():
    log = logging.getLogger("specmesh.orchestrator")
    handler, level = Lines(), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield handler
    log.setLevel(level)
    log.removeHandler(handler)
    assert handler._lines == []


async def test_answer_that_was_finished(connect, serve, lines):
    stub = await serve(await connect([Verifier()], [Drafter(agreement=1)]))
    answer = await collect(stub.Generate(request()))
    stats, line = answer.finished.stats, await lines.next()
    assert (line["method"], line["status"], line["reason"]) == ("Generate", "OK", None)
    assert (line["session"], line["epoch"]) == (answer.started.session_id, 1)
    assert (line["model"], line["strategy"]) == ("toy", "speculative")
    assert line["finish_reason"] == "length"
    assert line["num_prompt_tokens"] == stats.num_prompt_tokens
    assert line["num_cached_tokens"] == stats.num_cached_tokens
    assert line["num_output_tokens"] == NUM_TOKENS
    assert line["duration_ms"] == pytest.approx(stats.duration_ms, abs=0.01)
    assert line["time_to_first_token_ms"] == pytest.approx(stats.time_to_first_token_ms, abs=0.01)
    assert line["acceptance"] == 1.0
    assert line["num_verify_calls"] == stats.num_verify_calls


async def test_requests_that_are_refused(connect, serve, lines):
    stub = await serve(await connect([Verifier()]))
    await refusal(stub.Generate(request(sampling={"temperature": -1})))
    line = await lines.next()
    assert (line["status"], line["reason"]) == ("INVALID_ARGUMENT", "INVALID_FIELD")
    assert line["session"] is line["model"] is line["time_to_first_token_ms"] is None
    await refusal(stub.Generate(request()))
    line = await lines.next()
    assert (line["status"], line["reason"]) == ("FAILED_PRECONDITION", "NO_FITTING_DRAFTER")
    assert line["strategy"] == "speculative"
    await refusal(stub.Resume(pb.ResumeRequest(session_id="s" * 64, epoch=2)))
    line = await lines.next()
    expected = ("Resume", "INVALID_ARGUMENT", "INVALID_FIELD")
    assert (line["method"], line["status"], line["reason"]) == expected
    assert line["session"] == "s" * 64


async def test_answer_that_broke_off_and_was_carried_on(
    connect, serve, store_on, redis_server, lines
):
    verifier, third = Verifier(), Hold()
    behind = await connect([verifier], [Drafter(agreement=1)])
    stub = await serve(behind, store_on(redis_server.url))
    verifier.faults.extend([passing, passing, third])
    call = stub.Generate(request())
    begun = await collect(call, num_chunks=2)
    await asyncio.wait_for(third.reached.wait(), 10)
    call.cancel()
    line = await lines.next()
    assert (line["status"], line["reason"]) == ("CANCELLED", None)
    assert line["num_output_tokens"] == len(begun.tokens) == 10
    received = pb.Received(token_ids=alone(request().sampling)[:7])
    await collect(stub.Resume(resuming(begun, received=received)))
    line = await lines.next()
    assert (line["method"], line["status"], line["epoch"]) == ("Resume", "OK", 2)
    assert (line["session"], line["resumed_from"]) == (begun.started.session_id, "store")
    assert line["num_output_tokens"] == NUM_TOKENS - 10


async def test_whose_request_it_was(lines):
    request = RequestMetrics("Complete", asyncio.get_running_loop().time() + 1)
    with pytest.raises(ResourceExhaustedStatus), identified("team-a"), request:
        raise ResourceExhaustedStatus("OVERLOADED", "too many")
    line = await lines.next()
    assert (line["identity"], line["method"]) == ("team-a", "Complete")
    assert (line["status"], line["reason"]) == ("RESOURCE_EXHAUSTED", "OVERLOADED")

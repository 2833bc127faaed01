"""Arize Phoenix as the place where a mesh's traces go, beside our own collector.

``make phoenix`` installs it, in an environment of its own (850 MB), and runs this.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans
from tests.e2e.processes import Process, Processes, launch
from tests.forks import surroundings
from tests.ports import free_port
from tests.traces.test_collector import Collector
from typer.testing import CliRunner

from specmesh.cli.app import app
from specmesh.client import AsyncClient, GenerationResult
from specmesh.traces.receiver import TraceReceiver

PROGRAM = Path(__file__).parents[2] / ".venv-phoenix/bin/phoenix"
pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="needs Arize Phoenix: make phoenix")

START_SECONDS = 90.0
ARRIVAL_SECONDS = 30.0
RESOLUTION_MS = 0.002
"""Of differences: Phoenix keeps times in microseconds, rounded by way of a float."""

Fields = dict[str, Any]


class Phoenix:
    """Phoenix as a process, and its REST API."""

    def __init__(self, folder: Path) -> None:
        self._url = f"http://127.0.0.1:{free_port()}"
        self.otlp = f"127.0.0.1:{free_port()}"
        environment = {
            "PHOENIX_WORKING_DIR": str(folder),
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": self._url.rpartition(":")[2],
            "PHOENIX_GRPC_PORT": self.otlp.rpartition(":")[2],
            "PHOENIX_TELEMETRY_ENABLED": "false",
            "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
        }
        command = (str(PROGRAM), "serve")
        self.process = Process("phoenix", launch(command, {**surroundings(), **environment}))

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with suppress(URLError, ConnectionError), urlopen(f"{self._url}/healthz", timeout=5):
                return
            time.sleep(0.2)
        raise AssertionError(f"Phoenix did not start:\n{self.process.output}")

    def spans(self, trace_id: str, count: int) -> list[Fields]:
        """Those of a trace, once there are ``count``."""
        url = f"{self._url}/v1/projects/default/spans?limit=1000&trace_id={trace_id}"
        deadline = time.monotonic() + ARRIVAL_SECONDS
        found: list[Fields] = []
        while time.monotonic() < deadline:
            with urlopen(url, timeout=5) as response:
                found = json.load(response)["data"]
            if len(found) >= count:
                break
            time.sleep(0.1)
        return found


class Relay(TraceReceiver):
    """Passes on to several what it is sent, as a collector with several exporters does."""

    def __init__(self, addresses: Sequence[str]) -> None:
        super().__init__()
        self._channels = [grpc.aio.insecure_channel(each) for each in addresses]
        self._passing_on: list[asyncio.Task[None]] = []

    def _take(self, resource_spans: Iterable[ResourceSpans]) -> None:
        request = ExportTraceServiceRequest(resource_spans=resource_spans)
        super()._take(request.resource_spans)
        self._passing_on.append(asyncio.create_task(self._pass_on(request)))

    async def _pass_on(self, request: ExportTraceServiceRequest) -> None:
        for channel in self._channels:
            await TraceServiceStub(channel).Export(request, wait_for_ready=True, timeout=10)

    async def __aexit__(self, *exc_info):
        await super().__aexit__(*exc_info)
        await asyncio.gather(*self._passing_on)
        for channel in self._channels:
            await channel.close()


def answers(addresses: Sequence[str], strategies: Sequence[str]) -> Mapping[str, GenerationResult]:
    """By strategy: those of a mesh that sends its spans to ``addresses``, which it has done."""

    async def ask() -> Mapping[str, GenerationResult]:
        async with Relay(addresses) as relay:
            environment = {
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": relay.endpoint,
                "OTEL_BSP_SCHEDULE_DELAY": "50",
            }
            with Processes() as own:
                verifiers = [own.verifier(**environment) for _ in range(2)]
                drafter = own.drafter(**environment)
                orchestrator = await asyncio.to_thread(
                    own.orchestrator, verifiers, [drafter], **environment
                )
                address = await asyncio.to_thread(lambda: orchestrator.address)
                async with AsyncClient(address) as client:
                    found = {
                        strategy: await client.generate(
                            "def read_config(path):",
                            strategy=strategy,
                            max_tokens=24,
                            temperature=0.8,
                            seed=7,
                        )
                        for strategy in strategies
                    }
                await asyncio.to_thread(drain, own)
            return found

    return asyncio.run(ask())


def drain(processes: Processes) -> None:
    """End all of them the way in which they send their last spans."""
    for process in processes.started:
        process.send(signal.SIGTERM)
    for process in processes.started:
        process.wait_exit()


def shown(store: Path, session: str) -> Fields:
    """What ``specmesh trace show`` says of the answer with that session."""
    listed = said("list", "--session", session, "--store", str(store))
    (summary,) = listed["traces"]
    return said("show", summary["trace_id"], "--no-what-if", "--store", str(store))


def said(*words: str) -> Fields:
    done = CliRunner().invoke(app, ["trace", *words, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def milliseconds(since: str, until: str) -> float:
    duration = datetime.fromisoformat(until) - datetime.fromisoformat(since)
    return duration / timedelta(milliseconds=1)


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """Phoenix, our own store, and answers whose traces both were sent."""
    phoenix = Phoenix(tmp_path_factory.mktemp("phoenix"))
    store = tmp_path_factory.mktemp("store") / "traces.sqlite"
    collector = Collector(store, "--keep", "all")
    try:
        phoenix.wait_until_ready()
        addresses = (phoenix.otlp, collector.said["address"])
        found = answers(addresses, ("dsi", "speculative"))
        collector.stored(len(found))
        yield phoenix, store, found
    finally:
        collector.stop()
        phoenix.process.kill()


@pytest.mark.parametrize("strategy", ["dsi", "speculative"])
def test_phoenix_has_the_spans_of_an_answer_as_our_own_store_has_them(asked, strategy):
    phoenix, store, found = asked
    ours = shown(store, found[strategy].session_id)
    assert (ours["incomplete"], ours["clocks"]) == ([], [])
    trace_id = ours["summary"]["trace_id"]
    theirs = {
        span["context"]["span_id"]: span for span in phoenix.spans(trace_id, len(ours["spans"]))
    }
    assert theirs.keys() == {span["span_id"] for span in ours["spans"]}
    (root,) = [span for span in theirs.values() if span["parent_id"] is None]
    for span in ours["spans"]:
        other = theirs[span["span_id"]]
        assert other["name"] == span["name"]
        assert (other["parent_id"] or "") == span["parent_span_id"]
        assert other["status_code"] == ("ERROR" if span["is_error"] else "UNSET")
        start_ms = milliseconds(root["start_time"], other["start_time"])
        assert start_ms == pytest.approx(span["start_ms"], abs=RESOLUTION_MS)
        ms = milliseconds(other["start_time"], other["end_time"])
        assert ms == pytest.approx(span["ms"], abs=RESOLUTION_MS)
        # It adds names of its own to those that it was sent.
        names = span["attributes"].keys()
        assert {name: other["attributes"].get(name) for name in names} == span["attributes"]


@pytest.mark.parametrize("strategy", ["dsi", "speculative"])
def test_phoenix_knows_an_answer_by_the_conventions_for_generative_ai(asked, strategy):
    phoenix, store, found = asked
    result, summary = found[strategy], shown(store, found[strategy].session_id)["summary"]
    spans = phoenix.spans(summary["trace_id"], summary["num_spans"])
    (model_call,) = [span for span in spans if span["span_kind"] == "LLM"]
    assert model_call["parent_id"] is None
    told = model_call["attributes"]
    assert told["gen_ai.response.id"] == summary["session"] == result.session_id
    assert told["specmesh.strategy"] == summary["strategy"] == strategy
    assert told["llm.model_name"] == summary["model"]
    assert told["llm.token_count.completion"] == summary["num_tokens"] == len(result.token_ids)
    assert told["llm.token_count.prompt"] == result.stats.num_prompt_tokens
    assert told["specmesh.acceptance"] == summary["acceptance"]

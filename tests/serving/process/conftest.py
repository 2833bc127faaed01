"""Real server processes, and a real OTLP receiver for what they send."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import grpc.aio
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2
from tests.forks import Forked, nursery

from specmesh.mesh.v1alpha1 import drafter_pb2, drafter_pb2_grpc, verifier_pb2, verifier_pb2_grpc

FAKE_VERIFIER = str(Path(__file__).with_name("fake_verifier.py"))
PATIENCE_S = 30
"""Fails a test instead of hanging it; never a measure of speed."""


class ServerProcess:
    """``fake_verifier.py`` in a process of its own."""

    def __init__(self, process: Forked, told: int, stderr: asyncio.StreamReader) -> None:
        self._process = process
        self._told = told
        self._stderr = stderr
        self.log: list[dict[str, Any]] = []
        self.address = ""

    @classmethod
    async def launch(cls, *flags: str, env: Mapping[str, str] | None = None) -> Self:
        clean = {name: value for name, value in os.environ.items() if "OTEL" not in name}
        stdin, told = os.pipe()
        errors, stderr = os.pipe()
        streams = (stdin, sys.__stdout__.fileno(), stderr)
        process = nursery().fork(FAKE_VERIFIER, flags, clean | dict(env or {}), streams)
        for theirs in (stdin, stderr):
            os.close(theirs)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(errors, "rb")
        )
        return cls(process, told, reader)

    async def logged(self, event: str) -> dict[str, Any]:
        """The next log line with ``event``."""
        async with asyncio.timeout(PATIENCE_S):
            async for line in self._stderr:
                if not line.startswith(b"{"):
                    continue  # gRPC's C core
                self.log.append(json.loads(line))
                if self.log[-1]["event"] == event:
                    self.address = self.log[-1].get("address", self.address)
                    return self.log[-1]
        raise AssertionError(f"ended without {event!r}: {self.log}")

    def go_on(self) -> None:
        """Release whoever waits in the process."""
        os.write(self._told, b"\n")

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        """Wait for its end; the exit status."""
        async with asyncio.timeout(PATIENCE_S):
            async for line in self._stderr:
                if line.startswith(b"{"):
                    self.log.append(json.loads(line))
        return await asyncio.to_thread(self._process.wait, PATIENCE_S)

    async def kill(self) -> None:
        self._process.kill()
        await self.ended()
        os.close(self._told)


Launch = Callable[..., Awaitable[ServerProcess]]


@pytest.fixture
async def launch() -> AsyncIterator[Launch]:
    """Starts a process; with ``until`` it waits for that event."""
    processes = []

    async def launch(
        *flags: str, env: Mapping[str, str] | None = None, until: str = "serving"
    ) -> ServerProcess:
        processes.append(await ServerProcess.launch(*flags, env=env))
        await processes[-1].logged(until)
        return processes[-1]

    yield launch
    for process in processes:
        await process.kill()


class Calls:
    """Calls to one address."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self._verifier = verifier_pb2_grpc.VerifierServiceStub(channel)
        self._drafter = drafter_pb2_grpc.DrafterServiceStub(channel)

    def verify(self, wish: str = "", **options: Any) -> Any:
        request = verifier_pb2.VerifyRequest(prefix={"session_id": wish})
        return self._verifier.Verify(request, **{"timeout": PATIENCE_S} | options)

    def draft(self, wish: str = "", **options: Any) -> Any:
        request = drafter_pb2.DraftRequest(prefix={"session_id": wish})
        return self._drafter.Draft(request, **{"timeout": PATIENCE_S} | options)


Connect = Callable[[str], Calls]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    channels = []

    def connect(address: str) -> Calls:
        # Channels of one process share connections unless told otherwise.
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels.append(grpc.aio.insecure_channel(address, options=options))
        return Calls(channels[-1])

    yield connect
    for channel in channels:
        await channel.close()


class Collector(
    trace_service_pb2_grpc.TraceServiceServicer, metrics_service_pb2_grpc.MetricsServiceServicer
):
    """Keeps what it receives over OTLP."""

    def __init__(self) -> None:
        self.spans: list[trace_pb2.Span] = []
        self.resources: list[dict[str, Any]] = []
        self.metrics: set[str] = set()
        self.address = ""
        self._news = asyncio.Condition()

    async def Export(self, request, context):  # noqa: N802
        async with self._news:
            for part in request.resource_spans:
                self.resources.append(attributes(part.resource))
                self.spans += [span for scope in part.scope_spans for span in scope.spans]
            self._news.notify_all()
        return trace_service_pb2.ExportTraceServiceResponse()

    async def export_metrics(self, request, context):
        for part in request.resource_metrics:
            self.metrics |= {metric.name for s in part.scope_metrics for metric in s.metrics}
        return metrics_service_pb2.ExportMetricsServiceResponse()

    async def received(self, **wanted: Any) -> trace_pb2.Span:
        """The first span whose fields (``name``, ``kind``, ``parent_span_id``) are ``wanted``."""

        def fits(span: trace_pb2.Span) -> bool:
            return all(getattr(span, field) == value for field, value in wanted.items())

        async with asyncio.timeout(PATIENCE_S), self._news:
            await self._news.wait_for(lambda: any(map(fits, self.spans)))
        return next(filter(fits, self.spans))

    @property
    def env(self) -> dict[str, str]:
        """Makes a process send here, and soon."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{self.address}",
            "OTEL_BSP_SCHEDULE_DELAY": "20",
        }


@asynccontextmanager
async def _running(collector: Collector) -> AsyncIterator[None]:
    server = grpc.aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    handler = grpc.unary_unary_rpc_method_handler(
        collector.export_metrics,
        metrics_service_pb2.ExportMetricsServiceRequest.FromString,
        metrics_service_pb2.ExportMetricsServiceResponse.SerializeToString,
    )
    service = "opentelemetry.proto.collector.metrics.v1.MetricsService"
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(service, {"Export": handler})]
    )
    collector.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    yield
    await server.stop(None)


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    collector = Collector()
    async with _running(collector):
        yield collector


def attributes(holder: Any) -> dict[str, Any]:
    """The attributes of a span or resource, as Python values."""
    found = {}
    for item in holder.attributes:
        kind = item.value.WhichOneof("value")
        found[item.key] = getattr(item.value, kind) if kind else None
    return found

"""A local mesh that keeps the traces of chosen answers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from specmesh.cli.local.cores import Placement, pinned_to
from specmesh.cli.local.mesh import LocalMesh, MeshOptions
from specmesh.client import AsyncClient, GenerationStream
from specmesh.traces.receiver import TraceReceiver
from specmesh.traces.spans import by_trace
from specmesh.traces.trace import Trace


class TracedMesh:
    """A local mesh, which runs during an ``async with mesh.running()`` block."""

    def __init__(
        self, options: MeshOptions, directory: Path, report: Callable[[str], None]
    ) -> None:
        self.placement = Placement((), frozenset(), frozenset())
        """The cores of each process, known once the mesh runs."""
        self._options = options
        self._directory = directory
        self._report = report
        self._receiver = TraceReceiver(directory / "trace.jsonl")
        self._mesh: LocalMesh | None = None

    def traces(self) -> Mapping[str, Sequence[Trace]]:
        """Return the traces by the strategy of the answer, in the order in which they ended.

        They are complete once the mesh is down, because its processes send the last spans as they
        end.
        """
        traces: dict[str, list[Trace]] = defaultdict(list)
        for spans in by_trace(self._receiver.spans):
            found = Trace.of(spans)
            traces[str(found.root.attributes.get("specmesh.strategy", ""))].append(found)
        return traces

    @property
    def pids(self) -> Mapping[str, int]:
        """Return process ids by name, while the mesh runs."""
        return {} if self._mesh is None else self._mesh.pids

    @property
    def addresses(self) -> Mapping[str, str]:
        """Return the addresses of its processes by name, while it runs."""
        return {} if self._mesh is None else self._mesh.addresses

    def kill(self) -> None:
        """Kill the mesh immediately."""
        if self._mesh is not None:
            self._mesh.kill()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[AsyncClient]:
        """Run the mesh, and yield a client of it. Raises StartError."""
        async with self._receiver:
            environment = {
                **self._options.environment,
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": self._receiver.endpoint,
                # Trace only what the client traces, because timed runs must not be traced.
                "OTEL_TRACES_SAMPLER": "parentbased_always_off",
            }
            options = replace(self._options, environment=environment)
            self._mesh = LocalMesh(options, self._directory, self._report)
            self.placement = self._mesh.placement
            # Otherwise the client would sometimes compete with the target.
            with pinned_to(self.placement.rest):
                async with self._mesh, AsyncClient(self._mesh.address) as client:
                    yield client

    async def trace(self, streams: Iterable[GenerationStream]) -> None:
        """Trace answers by reading ``streams``, which have not begun, one after the other.

        It can be used once, like ``tracing``.
        """
        async with self.tracing():
            for stream in streams:
                await stream

    @asynccontextmanager
    async def tracing(self) -> AsyncIterator[None]:
        """Trace the answers of the block.

        It can be used once, after everything that is timed, because this process goes on tracing.
        """
        resource = Resource.create({"service.name": "specmesh-client"})
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=self._receiver.endpoint, insecure=True)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        try:
            yield
        finally:
            # On another thread, because the receiver needs this one.
            await asyncio.to_thread(provider.shutdown)

"""One trace an answer, from the client to every replica; a cancelled answer ends everywhere."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pytest
import pytest_asyncio
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from tests.e2e.answers import LONG, answer, said
from tests.e2e.processes import Process, Processes

from specmesh.client import AsyncClient, telemetry
from specmesh.traces.analysis.cancellation import cancellations, stop_times
from specmesh.traces.analysis.token_tree import token_tree
from specmesh.traces.analysis.verdicts import answering
from specmesh.traces.receiver import TraceReceiver
from specmesh.traces.spans import Span, SpanKind, servers_of
from specmesh.traces.trace import Trace

pytestmark = pytest.mark.asyncio(loop_scope="module")

ARRIVAL_SECONDS = 30.0
CANCEL_MS = 250.0
"""How long a cancel may take to reach a replica; far below what a long answer takes."""

GENERATE = "specmesh.v1.GenerationService/Generate"
DRAFT = "specmesh.mesh.v1alpha1.DrafterService/Draft"
VERIFY = "specmesh.mesh.v1alpha1.VerifierService/Verify"
VERDICT = "specmesh.verdict"
"""A further one of a call, where nothing was drafted."""

PARENTS = {
    (GENERATE, SpanKind.SERVER): "specmesh.generate",
    ("specmesh.round", SpanKind.INTERNAL): GENERATE,
    ("specmesh.commit", SpanKind.INTERNAL): GENERATE,
    ("specmesh.draft", SpanKind.CLIENT): "specmesh.round",
    ("specmesh.verify", SpanKind.CLIENT): "specmesh.round",
    (DRAFT, SpanKind.SERVER): "specmesh.draft",
    (VERIFY, SpanKind.SERVER): "specmesh.verify",
    (VERDICT, SpanKind.INTERNAL): VERIFY,
}
SERVICES = {
    "specmesh.generate": "specmesh-client",
    GENERATE: "specmesh-orchestrator",
    "specmesh.round": "specmesh-orchestrator",
    "specmesh.commit": "specmesh-orchestrator",
    "specmesh.draft": "specmesh-orchestrator",
    "specmesh.verify": "specmesh-orchestrator",
    DRAFT: "specmesh-drafter",
    VERIFY: "specmesh-verifier",
    VERDICT: "specmesh-verifier",
}


class Receiver(TraceReceiver):
    """Tells when what a test waits for has arrived."""

    def __init__(self) -> None:
        super().__init__()
        self._arrival = asyncio.Event()

    def _take(self, resource_spans: Iterable[ResourceSpans]) -> None:
        super()._take(resource_spans)
        self._arrival.set()

    async def wait_until(self, complete: Callable[[Sequence[Span]], bool]) -> list[Span]:
        async with asyncio.timeout(ARRIVAL_SECONDS):
            while not complete(self.spans):
                self._arrival.clear()
                await self._arrival.wait()
        return list(self.spans)


@dataclass(frozen=True, slots=True)
class TracedMesh:
    """A mesh that sends all its spans, and the client's, to one receiver."""

    processes: Processes
    client: AsyncClient
    receiver: Receiver
    verifier: Process
    drafter: Process
    flags: Sequence[str]
    environment: Mapping[str, str]
    """Of every service."""

    async def trace_of(self, session_id: str) -> list[Span]:
        """All spans of the answer with that session, once they are complete."""

        def spans_of_it(spans):
            ids = {
                s.trace_id for s in spans if s.attributes.get("gen_ai.response.id") == session_id
            }
            return [s for s in spans if s.trace_id in ids]

        spans = await self.receiver.wait_until(lambda spans: is_complete(spans_of_it(spans)))
        return spans_of_it(spans)

    async def cancelled_trace(self) -> list[Span]:
        """All spans of the one answer that its client cancelled, once they are complete."""

        def spans_of_it(spans):
            roots = [s for s in spans if s.name == "specmesh.generate" and is_cancelled(s)]
            return [s for s in spans if s.trace_id in {root.trace_id for root in roots}]

        spans = await self.receiver.wait_until(lambda spans: is_complete(spans_of_it(spans)))
        return spans_of_it(spans)


def is_complete(spans):
    """Whether a trace has its root, every span's parent, and a server for every call.

    A call that was cancelled early may never have reached its server.
    """
    spans = answering(spans)
    ids, parents = {s.span_id for s in spans}, {s.parent_span_id for s in spans}
    calls = [s for s in spans if s.kind is SpanKind.CLIENT and not is_cancelled(s)]
    return (
        any(s.name == "specmesh.generate" for s in spans)
        and any(s.name == GENERATE for s in spans)
        and parents - ids == {""}
        and all(call.span_id in parents for call in calls)
    )


def is_replicas(span):
    return span.name in {DRAFT, VERIFY}


def is_cancelled(span):
    return span.attributes.get("specmesh.cancelled") is True


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def traced():
    """A mesh with tracing, its client in this process."""
    with Processes() as processes, pytest.MonkeyPatch.context() as patch:
        async with Receiver() as receiver:
            environment = {
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": receiver.endpoint,
                "OTEL_BSP_SCHEDULE_DELAY": "50",
            }
            _, redis_url = processes.redis()
            flags = ("--redis-url", redis_url)
            verifier = processes.verifier(*flags, **environment)
            drafter = processes.drafter(*flags, **environment)
            orchestrator = await asyncio.to_thread(
                processes.orchestrator, [verifier], [drafter], *flags, **environment
            )
            address = await asyncio.to_thread(lambda: orchestrator.address)
            provider = TracerProvider(
                resource=Resource({"service.name": "specmesh-client"}), shutdown_on_exit=False
            )
            exporter = OTLPSpanExporter(receiver.endpoint, insecure=True)
            provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=50))
            patch.setattr(telemetry, "_tracer", provider.get_tracer("specmesh.client"))
            async with AsyncClient(address) as client:
                yield TracedMesh(processes, client, receiver, verifier, drafter, flags, environment)
            await asyncio.to_thread(provider.shutdown)
            for process in processes.started:  # while there is somebody to take their spans
                process.kill()


async def test_one_trace_holds_the_whole_answer(traced, prompts):
    drafting = {"temperature": 0, "max_tokens": 24, "strategy": "speculative", "lookahead": 4}
    result = await answer(traced.client, prompts[0], **drafting)
    spans = await traced.trace_of(result.session_id)
    by_id = {span.span_id: span for span in spans}
    names = defaultdict(list)
    for span in spans:
        names[span.name].append(span)
        assert span.node.service == SERVICES[span.name], span
        assert not span.is_error, span
        if span.name == "specmesh.generate":
            assert (span.parent_span_id, span.kind) == ("", SpanKind.CLIENT)
        else:
            assert by_id[span.parent_span_id].name == PARENTS[span.name, span.kind], span
    assert set(names) | {VERDICT} == set(SERVICES)
    assert len(names[GENERATE]) == len(names["specmesh.generate"]) == 1
    num_verdicts = len(names[VERIFY]) + len(names[VERDICT])
    assert num_verdicts == result.stats.num_verify_calls == len(names["specmesh.round"])
    accepted = sum(int(span.number("specmesh.accepted.tokens")) for span in names["specmesh.round"])
    assert accepted == result.stats.num_accepted_tokens
    for call in (*names["specmesh.draft"], *names["specmesh.verify"]):
        assert call.text("specmesh.cause") in {"start", "drafted", "verified", "capacity"}
        assert 0 <= call.number("specmesh.reaction_ms") < ARRIVAL_SECONDS * 1e3
        assert 0 <= call.number("specmesh.run_delay_ms") <= call.number("specmesh.reaction_ms")
    for served in (*names[DRAFT], *names[VERIFY]):
        assert by_id[served.parent_span_id].text("specmesh.replica") == served.node.instance != ""
    computed = sum(span.number("specmesh.computed_tokens") for span in names[VERIFY])
    assert computed >= result.stats.num_prompt_tokens


async def test_the_servers_span_says_what_became_of_the_answer(traced, prompts):
    drafting = {"temperature": 0, "max_tokens": 24, "strategy": "speculative", "lookahead": 4}
    result = await answer(traced.client, prompts[0], **drafting)
    spans = await traced.trace_of(result.session_id)
    (server,) = [span for span in spans if span.name == GENERATE]
    stats = result.stats
    expected = {
        "gen_ai.response.id": result.session_id,
        "gen_ai.response.model": result.model,
        "gen_ai.response.finish_reasons": (result.finish_reason.value,),
        "gen_ai.usage.input_tokens": stats.num_prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": stats.num_cached_tokens,
        "gen_ai.usage.output_tokens": 24,
        "specmesh.strategy": "speculative",
        "specmesh.acceptance": stats.num_accepted_tokens / stats.num_verified_tokens,
    }
    assert {name: server.attributes.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    "strategy",
    ["speculative", "dsi", "branch-prediction", "exhaustive", "autoregressive", "tree"],
)
async def test_the_trace_tells_what_became_of_every_token(traced, prompts, strategy):
    options = {**LONG, "max_tokens": 48, "temperature": 0.8, "seed": 5, "strategy": strategy}
    result = await answer(traced.client, prompts[1], **options)
    spans = await traced.trace_of(result.session_id)
    tree = token_tree(spans)
    counts = tree.counts()
    kinds = [str(kind) for kind in result.kinds]
    # The strategy may have committed more than the answer may be long.
    assert [token.fate.value for token in tree.committed][: len(kinds)] == kinds
    assert {token.text for token in tree.committed} == {None}
    assert counts["accepted"] == result.stats.num_accepted_tokens
    # The tree has each token once, however often it was drafted; what a draft brings once it is
    # cancelled, or the answer has ended, is in the trace alone.
    assert counts["accepted"] + counts["rejected"] <= result.stats.num_drafted_tokens
    trace = Trace.of(spans)
    assert (trace.gaps, trace.corrections) == ([], [])
    assert sum(each.ms for each in trace.path) == pytest.approx(trace.root.duration_ms)


async def test_a_client_that_goes_away_ends_all_work_without_an_error(traced, prompts):
    # Long drafts make it all but sure that one is at work.
    options = {**LONG, "max_tokens": 800, "strategy": "speculative", "lookahead": 64}
    stream = traced.client.generate(prompts[1], **options)
    chunks = aiter(stream)
    await anext(chunks)
    await chunks.aclose()
    (trace_id,) = {span.trace_id for span in await traced.cancelled_trace()}
    # A replica exports in order: with this answer's spans come all that it did before.
    following = await answer(traced.client, prompts[2], **LONG)
    trace = await traced.trace_of(following.session_id)
    waits = [span.number("specmesh.queue_ms") for span in trace if is_replicas(span)]
    assert max(waits) < CANCEL_MS

    spans = [span for span in traced.receiver.spans if span.trace_id == trace_id]
    assert not [span for span in spans if span.is_error]
    (answered,) = (span for span in spans if span.name == GENERATE)
    assert is_cancelled(answered)
    assert "rpc.response.status_code" not in answered.attributes
    on_replicas = [span for span in spans if is_replicas(span)]
    assert {span.name for span in on_replicas} == {DRAFT, VERIFY}
    assert max(span.end_ns for span in on_replicas) < answered.end_ns + CANCEL_MS * 1e6
    assert sum(map(is_cancelled, on_replicas)) <= 1


async def test_work_that_dsi_rejects_stops_on_its_replica(traced, prompts):
    start, flags, environment = traced.processes, traced.flags, traced.environment
    verifiers = [traced.verifier, start.verifier(*flags, **environment)]
    orchestrator = await asyncio.to_thread(
        start.orchestrator, verifiers, [traced.drafter], *flags, **environment
    )
    async with AsyncClient(await asyncio.to_thread(lambda: orchestrator.address)) as client:
        options = {**LONG, "max_tokens": 80, "temperature": 0.8, "seed": 3, "lookahead": 2}
        rejecting = await answer(client, prompts[3], **options, strategy="dsi")
        following = await answer(client, prompts[4], **options, strategy="dsi")
        plain = await answer(client, prompts[3], **options, strategy="autoregressive")
    assert said(rejecting) == said(plain)
    # A replica exports in order: once all of them have sent spans of the following answer,
    # those of the one before are there, also of calls that were cancelled.
    replicas = {s.node for s in await traced.trace_of(following.session_id) if is_replicas(s)}
    assert len(replicas) == 3
    trace = await traced.trace_of(rejecting.session_id)

    found = cancellations(trace)
    servers = servers_of(trace)
    stopped = {
        span.name
        for each in found
        for call in each.calls
        for span in servers.get(call.span_id, ())
        if is_cancelled(span)
    }
    assert stopped == {DRAFT, VERIFY}
    assert not [span for span in trace if span.is_error]
    for each in found:
        assert 0 <= each.ended_ms <= each.stopped_ms < CANCEL_MS
    times = stop_times(found)
    assert 0 < times.p50_ms <= times.p99_ms < CANCEL_MS

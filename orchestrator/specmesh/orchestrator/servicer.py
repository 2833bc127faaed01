"""GenerationService: checks requests, admits them and streams their answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import grpc.aio
from opentelemetry import trace

from specmesh.decoding.errors import InvalidField
from specmesh.orchestrator.answer import Answer
from specmesh.orchestrator.entrance import Entrance
from specmesh.orchestrator.mesh.calls import Mesh
from specmesh.orchestrator.mesh.peer import kind_of
from specmesh.orchestrator.plan import Defaults, RequestPlan, make_plan
from specmesh.orchestrator.prompts import PromptReader
from specmesh.orchestrator.request_metrics import RequestMetrics
from specmesh.orchestrator.session_log import SessionLog
from specmesh.orchestrator.sessions import read_received, settled, told
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.target import Target, TargetRegistry
from specmesh.serving.errors import FailedPrecondition, Unavailable
from specmesh.serving.session import Generated, Session, Writer
from specmesh.serving.sessions import SessionStore
from specmesh.v1 import generation_pb2, generation_pb2_grpc

REQUEST_SECONDS = 600.0
"""Limit of a request whose client set no deadline."""

RESUME_TOKEN_BYTES = 16
"""128 random bits cannot be guessed."""

GenerateContext = grpc.aio.ServicerContext[
    generation_pb2.GenerateRequest, generation_pb2.GenerateResponse
]
ResumeContext = grpc.aio.ServicerContext[
    generation_pb2.ResumeRequest, generation_pb2.ResumeResponse
]
ListContext = grpc.aio.ServicerContext[
    generation_pb2.ListModelsRequest, generation_pb2.ListModelsResponse
]


class GenerationServicer(generation_pb2_grpc.GenerationServiceServicer):
    """Implements GenerationService for one mesh."""

    def __init__(
        self,
        mesh: Mesh,
        targets: TargetRegistry,
        store: SessionStore | None,
        defaults: Defaults,
    ) -> None:
        self._mesh = mesh
        self._targets = targets
        self._store = store
        self._defaults = defaults
        self._prompts = PromptReader()
        self._entrance = Entrance(
            mesh.admission, lambda: len(mesh.verifiers.ready), mesh.dice.random
        )

    async def Generate(  # noqa: N802
        self, request: generation_pb2.GenerateRequest, context: GenerateContext
    ) -> AsyncGenerator[generation_pb2.GenerateResponse, None]:
        """Stream a new answer, or the rest of one that the client received in part."""
        with RequestMetrics(_deadline(context)) as metrics:
            answer = await self._new_answer(request, metrics)
            resumed = bool(request.received.token_ids)
            async with (
                self._entrance.slot(metrics.deadline, resumed=resumed) as slot,
                aclosing(answer.events(self._mesh, slot.leave)) as events,
            ):
                async for event in events:
                    yield generation_pb2.GenerateResponse(event=event)

    async def Resume(  # noqa: N802
        self, request: generation_pb2.ResumeRequest, context: ResumeContext
    ) -> AsyncGenerator[generation_pb2.ResumeResponse, None]:
        """Stream the rest of a stored answer whose stream broke."""
        with RequestMetrics(_deadline(context)) as metrics:
            async with self._entrance.slot(metrics.deadline, resumed=True) as slot:
                # A request that is not admitted must not take over the session.
                answer = await self._resumed_answer(request, metrics)
                async with aclosing(answer.events(self._mesh, slot.leave)) as events:
                    async for event in events:
                        yield generation_pb2.ResumeResponse(event=event)

    async def _new_answer(
        self, request: generation_pb2.GenerateRequest, metrics: RequestMetrics
    ) -> Answer:
        """An answer from its first token on, or from the last one that the client received."""
        target = self._target()
        _check_model(request.model_fingerprint, target)
        prompt = await self._prompts.read(request, target)
        plan = make_plan(request, prompt, target, self._defaults, self._mesh.dice)
        received = read_received(request.received, plan.goal, target.info.vocab_size)
        _describe(plan, target, metrics)
        if not received.token_ids:  # one that has begun is finished, if slower
            self._check_mesh(plan.strategy)
        session = Session(
            session_id=f"{self._mesh.dice.getrandbits(128):032x}",
            resume_token=self._mesh.dice.randbytes(RESUME_TOKEN_BYTES),
            model=kind_of(target.info),
            request=settled(plan, target.info.name).SerializeToString(),
            prompt=plan.prompt,
        )
        log = self._log(session, self._writer(_epoch(request)), received, is_stored=False)
        return Answer(plan, target, log, metrics, received, len(received.token_ids))

    async def _resumed_answer(
        self, request: generation_pb2.ResumeRequest, metrics: RequestMetrics
    ) -> Answer:
        """The rest of an answer whose stream broke, taken over from the orchestrator that wrote it.

        Everything is checked before: a request that fails must not take the session.
        """
        target = self._target()
        if not request.epoch:
            raise InvalidField("epoch", "must be set, above that of the stream that broke")
        store = _required(self._store)
        with told():
            session = await store.read(request.session_id, request.resume_token)
        _check_model(session.model, target)
        settled_request = generation_pb2.GenerateRequest.FromString(session.request)
        plan = make_plan(settled_request, session.prompt, target, self._defaults, self._mesh.dice)
        received = read_received(request.received, plan.goal, target.info.vocab_size)
        _describe(plan, target, metrics)
        writer = self._writer(request.epoch)
        with told():
            generated = await store.take(request.session_id, request.resume_token, writer, received)
        log = self._log(session, writer, generated, is_stored=True)
        return Answer(plan, target, log, metrics, generated, len(received.token_ids))

    def _writer(self, epoch: int) -> Writer:
        """A new writer for one stream: no other stream writes to the store under its id."""
        return Writer(epoch, f"{self._mesh.dice.getrandbits(64):016x}")

    def _log(
        self, session: Session, writer: Writer, generated: Generated, *, is_stored: bool
    ) -> SessionLog:
        return SessionLog(
            self._store, session, writer, generated, self._mesh.dice, is_stored=is_stored
        )

    async def ListModels(  # noqa: N802
        self,
        request: generation_pb2.ListModelsRequest,  # noqa: ARG002
        context: ListContext,  # noqa: ARG002
    ) -> generation_pb2.ListModelsResponse:
        """Describe the target, its drafters and the strategies."""
        drafters = [peer.model.info for peer in self._mesh.drafters.ready if peer.model]
        model = generation_pb2.ServedModel(
            target=self._target().info,
            drafters=drafters,
            num_verifiers=len(self._mesh.verifiers.ready),
            strategies=list(STRATEGIES),
            default_strategy=self._defaults.strategy,
            default_lookahead=self._defaults.lookahead or 0,
        )
        return generation_pb2.ListModelsResponse(models=[model])

    def _target(self) -> Target:
        target = self._targets.known
        if target is None:
            raise Unavailable("NO_VERIFIER", "no replica of the target has come up yet")
        # Replicas that are down count too: they may be back when the answer has grown.
        replicas = [peer for peer in self._mesh.verifiers.peers if not peer.refusal]
        capacities = [peer.model.info.kv_capacity_tokens for peer in replicas if peer.model]
        return replace(target, kv_capacity_tokens=min(filter(None, capacities), default=0))

    def _check_mesh(self, strategy: str) -> None:
        """Refuse a strategy that the mesh can never run; one it cannot run right now falls back."""
        if STRATEGIES[strategy].needs_confidence and not self._mesh.confidence.peers:
            raise FailedPrecondition(
                "NO_CONFIDENCE_SERVICE",
                f"strategy {strategy!r} needs a confidence service: none is configured",
            )
        peers = self._mesh.drafters.peers
        if STRATEGIES[strategy].needs_drafter and all(peer.refusal for peer in peers):
            reasons = "; ".join(f"{peer.address}: {peer.refusal}" for peer in peers)
            raise FailedPrecondition(
                "NO_FITTING_DRAFTER",
                f"strategy {strategy!r} needs a drafter: {reasons or 'none is configured'}",
            )


def _deadline(context: GenerateContext | ResumeContext) -> float:
    remaining = context.time_remaining()
    return asyncio.get_running_loop().time() + (REQUEST_SECONDS if remaining is None else remaining)


def _describe(plan: RequestPlan, target: Target, metrics: RequestMetrics) -> None:
    metrics.attributes["gen_ai.request.model"] = target.info.name
    span = trace.get_current_span()
    if span.is_recording():
        if plan.goal.lookahead is not None:
            span.set_attribute("specmesh.lookahead", plan.goal.lookahead)
        span.set_attributes(
            {
                **metrics.attributes,
                "gen_ai.request.max_tokens": plan.goal.max_tokens,
                "gen_ai.request.temperature": plan.sampling.temperature,
                "gen_ai.usage.input_tokens": len(plan.prompt),
                "specmesh.strategy": plan.strategy,
            }
        )


def _epoch(request: generation_pb2.GenerateRequest) -> int:
    epoch = request.epoch if request.HasField("epoch") else 1
    if not epoch:
        raise InvalidField("epoch", "must be at least 1")
    return epoch


def _required(store: SessionStore | None) -> SessionStore:
    if store is None:
        raise Unavailable("NO_STORE", "this orchestrator has no session store")
    return store


def _check_model(fingerprint: str, target: Target) -> None:
    """Refuse to continue an answer that another model began."""
    served = kind_of(target.info)
    if fingerprint not in {"", served}:
        raise FailedPrecondition(
            "TARGET_REPLACED",
            f"the answer began with {fingerprint}, this mesh serves {served}",
            {"began_with": fingerprint, "served": served},
        )

"""GenerationService: message to plan, one answer, events to messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import grpc.aio
from opentelemetry import trace

from specmesh.orchestrator.answer import Answer
from specmesh.orchestrator.mesh.calls import Mesh
from specmesh.orchestrator.plan import Defaults, Plan, make_plan
from specmesh.orchestrator.prompts import PromptReader
from specmesh.orchestrator.request_metrics import RequestMetrics
from specmesh.orchestrator.session_log import SessionLog, take
from specmesh.orchestrator.strategies import NEEDS_DRAFTER, NEEDS_FILTER, STRATEGIES
from specmesh.orchestrator.target import Target, TargetRegistry
from specmesh.serving.errors import FailedPrecondition, Unavailable
from specmesh.serving.sessions import SessionStore
from specmesh.v1 import generation_pb2, generation_pb2_grpc

REQUEST_SECONDS = 600.0
"""Limit of a request whose client set no deadline."""

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
    """Answers clients; ``owner`` names this orchestrator in the sessions it holds."""

    def __init__(
        self,
        mesh: Mesh,
        targets: TargetRegistry,
        store: SessionStore | None,
        defaults: Defaults,
        owner: str,
    ) -> None:
        self._mesh = mesh
        self._targets = targets
        self._store = store
        self._defaults = defaults
        self._owner = owner
        self._prompts = PromptReader()

    async def Generate(  # noqa: N802
        self, request: generation_pb2.GenerateRequest, context: GenerateContext
    ) -> AsyncGenerator[generation_pb2.GenerateResponse, None]:
        """See generation.proto."""
        with RequestMetrics(_deadline(context)) as metrics:
            answer = await self._new(request, metrics)
            async with aclosing(answer.events(self._mesh)) as events:
                async for event in events:
                    yield generation_pb2.GenerateResponse(event=event)

    async def Resume(  # noqa: N802
        self, request: generation_pb2.ResumeRequest, context: ResumeContext
    ) -> AsyncGenerator[generation_pb2.ResumeResponse, None]:
        """See generation.proto."""
        with RequestMetrics(_deadline(context)) as metrics:
            answer = await self._taken(request, metrics)
            async with aclosing(answer.events(self._mesh)) as events:
                async for event in events:
                    yield generation_pb2.ResumeResponse(event=event)

    async def _new(
        self, request: generation_pb2.GenerateRequest, metrics: RequestMetrics
    ) -> Answer:
        """An answer to a request, from its first token on."""
        target = self._target()
        prompt = await self._prompts.read(request, target)
        plan = make_plan(request, prompt, target, self._defaults, self._mesh.dice)
        _describe(plan, target, metrics)
        self._check_mesh(plan.strategy)
        session = await SessionLog.create(
            self._store,
            f"{self._mesh.dice.getrandbits(128):032x}",
            owner=self._owner,
            request=_settled(request, plan).SerializeToString(),
            prompt=plan.prompt,
        )
        return Answer(plan, target, session, metrics)

    async def _taken(
        self, request: generation_pb2.ResumeRequest, metrics: RequestMetrics
    ) -> Answer:
        """The rest of an answer that was broken off, taken over from whoever held it."""
        target = self._target()
        record = await take(
            self._store,
            request.session_id,
            owner=self._owner,
            epoch=request.epoch if request.HasField("epoch") else None,
        )
        prompt = tuple(record.token_ids[: record.num_prompt_tokens])
        settled = generation_pb2.GenerateRequest.FromString(record.request)
        plan = make_plan(settled, prompt, target, self._defaults, self._mesh.dice)
        # No check for drafters: the epoch is spent, so whoever took the session must answer.
        _describe(plan, target, metrics)
        return Answer(
            plan,
            target,
            SessionLog(self._store, record.session_id, record.epoch),
            metrics,
            replayed=record.token_ids[record.num_prompt_tokens :],
            unchecked=record.unchecked,
            num_received=request.num_received_tokens,
        )

    async def ListModels(  # noqa: N802
        self,
        request: generation_pb2.ListModelsRequest,  # noqa: ARG002
        context: ListContext,  # noqa: ARG002
    ) -> generation_pb2.ListModelsResponse:
        """See generation.proto."""
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
        return target

    def _check_mesh(self, strategy: str) -> None:
        """A mesh that can never do it says so; one that just cannot now falls back."""
        if strategy in NEEDS_FILTER and not self._mesh.filters.peers:
            raise FailedPrecondition(
                "NO_CONFIDENCE_SERVICE",
                f"strategy {strategy!r} needs a confidence service: none is configured",
            )
        peers = self._mesh.drafters.peers
        if strategy in NEEDS_DRAFTER and all(peer.refusal for peer in peers):
            reasons = "; ".join(f"{peer.address}: {peer.refusal}" for peer in peers)
            raise FailedPrecondition(
                "NO_FITTING_DRAFTER",
                f"strategy {strategy!r} needs a drafter: {reasons or 'none is configured'}",
            )


def _settled(request: generation_pb2.GenerateRequest, plan: Plan) -> generation_pb2.GenerateRequest:
    """The request with every default filled in, so that it means the same anywhere."""
    settled = generation_pb2.GenerateRequest()
    settled.CopyFrom(request)
    settled.sampling.seed = plan.sampling.seed
    settled.stopping.max_tokens = plan.goal.max_tokens
    settled.speculation.strategy = plan.strategy
    if plan.goal.lookahead is not None:
        settled.speculation.lookahead = plan.goal.lookahead
    return settled


def _deadline(context: GenerateContext | ResumeContext) -> float:
    remaining = context.time_remaining()
    return asyncio.get_running_loop().time() + (REQUEST_SECONDS if remaining is None else remaining)


def _describe(plan: Plan, target: Target, metrics: RequestMetrics) -> None:
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

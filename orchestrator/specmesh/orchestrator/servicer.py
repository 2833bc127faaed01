"""GenerationService: checks requests, admits them and streams their answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

import grpc.aio
from opentelemetry import trace

from specmesh.decoding.errors import within
from specmesh.orchestrator.answer import Answer
from specmesh.orchestrator.entrance import Entrance
from specmesh.orchestrator.limits import Ledger, Limits
from specmesh.orchestrator.mesh.calls import Mesh
from specmesh.orchestrator.mesh.peer import kind_of
from specmesh.orchestrator.named_requests import named
from specmesh.orchestrator.plan import Defaults, RequestPlan, check_model, make_plan
from specmesh.orchestrator.prompts import PromptReader
from specmesh.orchestrator.request_metrics import RequestMetrics
from specmesh.orchestrator.served_models import check_page, missing, served_model
from specmesh.orchestrator.session_log import SessionLog
from specmesh.orchestrator.sessions import (
    read_claim,
    read_epoch,
    read_received,
    settled,
    stored_request,
    told,
)
from specmesh.orchestrator.stored_answers import described
from specmesh.orchestrator.target import Target, TargetRegistry
from specmesh.orchestrator.whole_answer import whole_answer
from specmesh.serving import conventions as names
from specmesh.serving.caller import identity
from specmesh.serving.errors import FailedPrecondition, Unavailable
from specmesh.serving.session import (
    Claim,
    Generated,
    Session,
    SessionNotFound,
    StoreUnavailable,
    Writer,
)
from specmesh.serving.sessions import SessionStore
from specmesh.v1 import (
    events_pb2,
    generation_pb2,
    generation_pb2_grpc,
    served_model_pb2,
    session_pb2,
)

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
CompleteContext = grpc.aio.ServicerContext[
    generation_pb2.CompleteRequest, generation_pb2.CompleteResponse
]
GetContext = grpc.aio.ServicerContext[session_pb2.GetSessionRequest, session_pb2.GetSessionResponse]
CancelContext = grpc.aio.ServicerContext[
    session_pb2.CancelSessionRequest, session_pb2.CancelSessionResponse
]
ListContext = grpc.aio.ServicerContext[
    served_model_pb2.ListModelsRequest, served_model_pb2.ListModelsResponse
]


class GenerationServicer(generation_pb2_grpc.GenerationServiceServicer):
    """Implements GenerationService for one mesh."""

    def __init__(
        self,
        mesh: Mesh,
        targets: TargetRegistry,
        store: SessionStore | None,
        defaults: Defaults,
        prompts: PromptReader,
        limits: Limits | None = None,
    ) -> None:
        self._mesh = mesh
        self._targets = targets
        self._store = store
        self._defaults = defaults
        self._prompts = prompts
        self._entrance = Entrance(
            mesh.admission,
            lambda: len(mesh.verifiers.ready),
            mesh.dice.random,
            Ledger(limits or Limits()),
        )

    @property
    def entrance(self) -> Entrance:
        """Where its answers wait to be admitted."""
        return self._entrance

    async def Generate(  # noqa: N802
        self, request: generation_pb2.GenerateRequest, context: GenerateContext
    ) -> AsyncGenerator[generation_pb2.GenerateResponse, None]:
        """Stream a new answer, or the rest of one that the client received in part."""
        async with aclosing(self._events("Generate", request, _deadline(context))) as events:
            async for event in events:
                yield generation_pb2.GenerateResponse(event=event)

    async def Complete(  # noqa: N802
        self, request: generation_pb2.CompleteRequest, context: CompleteContext
    ) -> generation_pb2.CompleteResponse:
        """Answer as ``Generate`` does, in one message."""
        asked = request.request
        with within("request"):
            async with aclosing(self._events("Complete", asked, _deadline(context))) as events:
                return await whole_answer(events, len(asked.received.token_ids))

    async def Resume(  # noqa: N802
        self, request: generation_pb2.ResumeRequest, context: ResumeContext
    ) -> AsyncGenerator[generation_pb2.ResumeResponse, None]:
        """Stream the rest of a stored answer whose stream broke."""
        with RequestMetrics("Resume", _deadline(context)) as metrics:
            metrics.asked_for(request.session_id)
            claim, epoch = read_claim(request), read_epoch(request)
            async with self._entrance.slot(metrics.deadline, metrics, resumed=True) as slot:
                # A request that is not admitted must not take over the session.
                with told():
                    answer = await self._resumed_answer(claim, epoch, request.received, metrics)
                async with aclosing(answer.events(self._mesh, slot.leave)) as events:
                    async for event in events:
                        yield generation_pb2.ResumeResponse(event=event)

    async def GetSession(  # noqa: N802
        self,
        request: session_pb2.GetSessionRequest,
        context: GetContext,  # noqa: ARG002
    ) -> session_pb2.GetSessionResponse:
        """Tell how far a session has got, without taking it."""
        claim = read_claim(request)
        with told():
            stored = await _required(self._store).read(claim)
        target = self._target()
        _check_fingerprint(stored.session.model, target)
        return session_pb2.GetSessionResponse(session=await described(stored, target))

    async def CancelSession(  # noqa: N802
        self,
        request: session_pb2.CancelSessionRequest,
        context: CancelContext,  # noqa: ARG002
    ) -> session_pb2.CancelSessionResponse:
        """End a session: its stream ends when it stores more or, being silent, touches it."""
        claim = read_claim(request)
        with told():
            await _required(self._store).cancel(claim)
        return session_pb2.CancelSessionResponse()

    async def _events(
        self, method: str, request: generation_pb2.GenerateRequest, deadline: float
    ) -> AsyncGenerator[events_pb2.GenerationEvent, None]:
        """The events of a new answer, or of the rest of one."""
        with RequestMetrics(method, deadline) as metrics:
            name = named(request, identity())
            if name is not None and not request.sampling.HasField("seed"):
                request.sampling.seed = name.seed
            answer = await self._new_answer(request, metrics)
            resumed = bool(request.received.token_ids)
            async with self._entrance.slot(metrics.deadline, metrics, resumed=resumed) as slot:
                if name is not None and self._store is not None:
                    with told():
                        answer = await self._named_answer(answer, name.claim, request, metrics)
                async with aclosing(answer.events(self._mesh, slot.leave)) as events:
                    async for event in events:
                        yield event

    async def _named_answer(
        self,
        new: Answer,
        claim: Claim,
        request: generation_pb2.GenerateRequest,
        metrics: RequestMetrics,
    ) -> Answer:
        """The answer that an earlier request of this id began, or else ``new``, whose session is
        then that of ``claim``. While the store is away ``new``, as if it had no id."""
        with suppress(StoreUnavailable):
            while not await new.begin(claim):
                # Whose start was lost can't know the session's epoch.
                epoch = request.epoch if request.HasField("epoch") else None
                with suppress(SessionNotFound):  # it has expired by now: begin anew
                    return await self._resumed_answer(claim, epoch, request.received, metrics)
        return new

    async def _new_answer(
        self, request: generation_pb2.GenerateRequest, metrics: RequestMetrics
    ) -> Answer:
        """An answer from its first token on, or from the last one that the client received."""
        if request.HasField("chat"):
            metrics.chat()
        target = self._target()
        check_model(request.model, target)
        _check_fingerprint(request.model_fingerprint, target)
        prompt = await self._prompts.read(request, target)
        plan = make_plan(request, prompt, target, self._defaults, self._mesh.dice)
        received = read_received(request.received, plan.goal, target.info.vocab_size)
        _describe(plan, target, metrics)
        # An answer that has begun is finished, if slower.
        if not received.token_ids and (lack := missing(plan.strategy, self._mesh)):
            raise lack
        claim = Claim(
            session_id=f"{self._mesh.dice.getrandbits(128):032x}",
            resume_token=self._mesh.dice.randbytes(RESUME_TOKEN_BYTES),
            owner=identity(),
        )
        session = Session(
            claim=claim,
            model=kind_of(target.info),
            request=settled(plan, target.info.name).SerializeToString(),
            prompt=plan.prompt,
        )
        epoch = read_epoch(request) if request.HasField("epoch") else 1
        log = self._log(session, Writer(epoch, self._writer_id()), received, is_stored=False)
        metrics.answering(log, "client" if received.token_ids else None)
        return Answer(plan, target, log, metrics, received, len(received.token_ids))

    async def _resumed_answer(
        self,
        claim: Claim,
        epoch: int | None,
        received_message: generation_pb2.Received,
        metrics: RequestMetrics,
    ) -> Answer:
        """The rest of a stored answer, taken over from the orchestrator that wrote it, without
        ``epoch`` under the one after the session's.

        Everything is checked before: a request that fails must not take the session. Raises
        ``SessionError`` as well.
        """
        target = self._target()
        store = _required(self._store)
        session = (await store.read(claim)).session
        _check_fingerprint(session.model, target)
        plan = make_plan(
            stored_request(session), session.prompt, target, self._defaults, self._mesh.dice
        )
        received = read_received(received_message, plan.goal, target.info.vocab_size)
        _describe(plan, target, metrics)
        writer, generated = await store.take(
            *(claim, epoch, self._writer_id(), received),
            exactly=plan.num_top_logprobs is not None,
        )
        log = self._log(session, writer, generated, is_stored=True)
        metrics.answering(log, "store")
        return Answer(plan, target, log, metrics, generated, len(received.token_ids))

    def _writer_id(self) -> str:
        """A new id for one stream: no other stream writes to the store under it."""
        return f"{self._mesh.dice.getrandbits(64):016x}"

    def _log(
        self, session: Session, writer: Writer, generated: Generated, *, is_stored: bool
    ) -> SessionLog:
        return SessionLog(
            self._store, session, writer, generated, self._mesh.dice, is_stored=is_stored
        )

    async def ListModels(  # noqa: N802
        self,
        request: served_model_pb2.ListModelsRequest,
        context: ListContext,  # noqa: ARG002
    ) -> served_model_pb2.ListModelsResponse:
        """Describe the target, its drafters and the strategies."""
        check_page(request)
        model = served_model(self._target(), self._mesh, self._defaults)
        return served_model_pb2.ListModelsResponse(models=[model])

    def _target(self) -> Target:
        target = self._targets.required()
        # Replicas that are down count too: they may be back when the answer has grown.
        replicas = [peer for peer in self._mesh.verifiers.peers if not peer.refusal]
        known = [peer.model.info for peer in replicas if peer.model]
        return target.served_by(known) if known else target


def _deadline(context: GenerateContext | ResumeContext | CompleteContext) -> float:
    remaining = context.time_remaining()
    return asyncio.get_running_loop().time() + (REQUEST_SECONDS if remaining is None else remaining)


def _describe(plan: RequestPlan, target: Target, metrics: RequestMetrics) -> None:
    metrics.planned(plan, target)
    span = trace.get_current_span()
    if span.is_recording():
        if plan.goal.lookahead is not None:
            span.set_attribute(names.LOOKAHEAD, plan.goal.lookahead)
        span.set_attributes(
            {
                **metrics.attributes,
                names.MAX_TOKENS: plan.goal.max_tokens,
                names.TEMPERATURE: plan.sampling.temperature,
                names.INPUT_TOKENS: len(plan.prompt),
            }
        )


def _required(store: SessionStore | None) -> SessionStore:
    if store is None:
        raise Unavailable("NO_STORE", "this orchestrator has no session store")
    return store


def _check_fingerprint(fingerprint: str, target: Target) -> None:
    """Refuse to continue an answer that another model began."""
    served = kind_of(target.info)
    if fingerprint not in {"", served}:
        raise FailedPrecondition(
            "TARGET_REPLACED",
            f"the answer began with {fingerprint}, this mesh serves {served}",
            {"began_with": fingerprint, "served": served},
        )

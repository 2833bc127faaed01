"""GenerationService, which checks requests, admits them and streams their answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import AsyncExitStack, aclosing
from typing import Any

import grpc.aio

from specmesh.decoding.errors import within
from specmesh.orchestrator.admission.accounts import Accounts
from specmesh.orchestrator.admission.entrance import Entrance
from specmesh.orchestrator.answers.beginning import HEARTBEATS, Begun, events_of
from specmesh.orchestrator.answers.opening import Answers, check_fingerprint, required_store
from specmesh.orchestrator.answers.request_metrics import RequestMetrics
from specmesh.orchestrator.answers.scores import admitted, read_scoring
from specmesh.orchestrator.answers.session_codec import (
    read_claim,
    read_epoch,
    told,
)
from specmesh.orchestrator.answers.stored_answers import described
from specmesh.orchestrator.answers.whole_answer import whole_answer
from specmesh.orchestrator.replicas.replica_pools import ReplicaPools
from specmesh.orchestrator.replicas.target import TargetRegistry
from specmesh.orchestrator.requests.chunk_intervals import WHOLE_INTERVAL_S, read_chunk_interval
from specmesh.orchestrator.requests.entries import check_entries
from specmesh.orchestrator.requests.many_requests import one_of_many
from specmesh.orchestrator.requests.named_requests import named
from specmesh.orchestrator.requests.plan import Defaults
from specmesh.orchestrator.requests.prompts import PromptReader
from specmesh.orchestrator.requests.served_models import check_page, served_model
from specmesh.serving.caller import identity
from specmesh.serving.rpc.many import Send, answer_many
from specmesh.serving.rpc.one_of_many import OneOfMany
from specmesh.serving.store.session_store import SessionStore
from specmesh.v1 import (
    events_pb2,
    generation_pb2,
    generation_pb2_grpc,
    scoring_pb2,
    served_model_pb2,
    session_pb2,
)

REQUEST_SECONDS = 600.0
"""Time limit of a request whose client set no deadline."""

GenerateContext = grpc.aio.ServicerContext[
    generation_pb2.GenerateRequest, generation_pb2.GenerateResponse
]
ManyContext = grpc.aio.ServicerContext[
    generation_pb2.GenerateManyRequest, generation_pb2.GenerateManyResponse
]
ResumeContext = grpc.aio.ServicerContext[
    generation_pb2.ResumeRequest, generation_pb2.ResumeResponse
]
CompleteContext = grpc.aio.ServicerContext[
    generation_pb2.CompleteRequest, generation_pb2.CompleteResponse
]
ScoreContext = grpc.aio.ServicerContext[scoring_pb2.ScoreRequest, scoring_pb2.ScoreResponse]
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
        mesh: ReplicaPools,
        targets: TargetRegistry,
        store: SessionStore | None,
        defaults: Defaults,
        prompts: PromptReader,
        accounts: Accounts | None = None,
    ) -> None:
        self._mesh = mesh
        self._prompts = prompts
        self._accounts = accounts or Accounts()
        self._store = store
        self._defaults = defaults
        self._answers = Answers(mesh, targets, store, defaults, prompts)
        self._entrance = Entrance(
            mesh.admission,
            lambda: len(mesh.verifiers.ready),
            mesh.rng.random,
        )

    @property
    def entrance(self) -> Entrance:
        """The queue in which answers wait for admission."""
        return self._entrance

    async def Generate(  # noqa: N802
        self, request: generation_pb2.GenerateRequest, context: GenerateContext
    ) -> AsyncGenerator[generation_pb2.GenerateResponse, None]:
        """Stream a new answer, or the rest of one that the client received in part."""
        async with aclosing(self._events("Generate", request, context)) as events:
            async for event in events:
                yield generation_pb2.GenerateResponse(event=event)

    def GenerateMany(  # noqa: N802
        self,
        request_iterator: AsyncIterator[Any],  # of HeldMessage
        context: ManyContext,
    ) -> AsyncIterator[generation_pb2.GenerateManyResponse]:
        """Stream the answers that the call asks for, each as ``Generate`` or ``Resume`` does."""
        new_message = generation_pb2.GenerateManyResponse
        return answer_many(request_iterator, context, self._one_of_many, new_message, one_of_many)

    async def _one_of_many(
        self,
        request: generation_pb2.GenerateEachRequest,
        context: OneOfMany,
        send: Send[generation_pb2.GenerateResponse],
    ) -> None:
        if request.HasField("resume"):
            answer = self._resumed(request.resume, context)
        else:
            answer = self._events("Generate", request.generate, context)
        async with aclosing(answer) as events:
            async for event in events:
                # Tokens that come while it waits to be sent go into one event.
                await send(generation_pb2.GenerateResponse(event=event)).sent()

    async def Complete(  # noqa: N802
        self, request: generation_pb2.CompleteRequest, context: CompleteContext
    ) -> generation_pb2.CompleteResponse:
        """Return the same answer as ``Generate`` in one message."""
        asked = request.request
        with within("request"):
            interval_s = max(WHOLE_INTERVAL_S, self._defaults.chunk_interval_s)
            answer = self._events("Complete", asked, context, interval_s)
            async with aclosing(answer) as events:
                return await whole_answer(events, len(asked.received.token_ids))

    async def Resume(  # noqa: N802
        self, request: generation_pb2.ResumeRequest, context: ResumeContext
    ) -> AsyncGenerator[generation_pb2.ResumeResponse, None]:
        """Stream the rest of a stored answer whose stream broke."""
        async with aclosing(self._resumed(request, context)) as events:
            async for event in events:
                yield generation_pb2.ResumeResponse(event=event)

    async def GetSession(  # noqa: N802
        self,
        request: session_pb2.GetSessionRequest,
        context: GetContext,  # noqa: ARG002
    ) -> session_pb2.GetSessionResponse:
        """Describe the progress of a session without taking it over."""
        self._accounts.read(request.ByteSize())
        claim = read_claim(request)
        with told():
            stored = await required_store(self._store).read(claim)
        target = self._answers.target()
        check_fingerprint(stored.session.model, target)
        with told():
            return session_pb2.GetSessionResponse(
                session=await described(stored, target, self._prompts)
            )

    async def CancelSession(  # noqa: N802
        self,
        request: session_pb2.CancelSessionRequest,
        context: CancelContext,  # noqa: ARG002
    ) -> session_pb2.CancelSessionResponse:
        """End a session; its stream ends at its next write to the store or its next touch."""
        claim = read_claim(request)
        with told():
            await required_store(self._store).cancel(claim)
        return session_pb2.CancelSessionResponse()

    async def _resumed(
        self, request: generation_pb2.ResumeRequest, context: ResumeContext | OneOfMany
    ) -> AsyncGenerator[events_pb2.GenerationEvent, None]:
        """Yield the events of the rest of a stored answer."""
        with (
            RequestMetrics("Resume", _deadline(context)) as metrics,
            self._accounts.answering(metrics, request.ByteSize()),
        ):
            metrics.asked_for(request.session_id)
            claim, epoch = read_claim(request), read_epoch(request)
            interval_s = self._chunk_interval_s(context.invocation_metadata() or ())

            async def begin(stack: AsyncExitStack) -> Begun:
                slot = await stack.enter_async_context(
                    self._entrance.slot(metrics.deadline, resumed=True)
                )
                # After admission: a request that is not admitted must not take over the session.
                with told():
                    answer = await self._answers.resumed(claim, epoch, request.received, metrics)
                return Begun(answer, slot)

            rest = events_of(
                begin, self._mesh, is_new=False, has_heartbeats=True, chunk_interval_s=interval_s
            )
            async with aclosing(rest) as events:
                async for event in events:
                    yield event

    async def _events(
        self,
        method: str,
        request: generation_pb2.GenerateRequest,
        context: GenerateContext | CompleteContext | OneOfMany,
        chunk_interval_s: float | None = None,
    ) -> AsyncGenerator[events_pb2.GenerationEvent, None]:
        """Yield the events of a new answer, or the rest of one. Chunks have the interval that the
        client asks for, unless another one is given."""
        metadata = context.invocation_metadata() or ()
        with (
            RequestMetrics(method, _deadline(context)) as metrics,
            # First of all, because tokenizing a prompt or rendering a chat already costs work.
            self._accounts.answering(metrics, request.ByteSize()),
        ):
            check_entries(request)
            if chunk_interval_s is None:
                chunk_interval_s = self._chunk_interval_s(metadata)
            name = named(request, identity())
            if name is not None and not request.sampling.HasField("seed"):
                request.sampling.seed = name.seed
            has_begun = request.HasField("received")
            # With no word of what began, it is as good as new.
            resumed = bool(request.received.token_ids or request.received.prompt_digest)

            # Not in the task that begins the answer: that takes several turns of the event loop,
            # which are long under overload.
            self._entrance.check(metrics.deadline, resumed=resumed)

            async def begin(stack: AsyncExitStack) -> Begun:
                answer = await self._answers.new(request, metrics)
                slot = await stack.enter_async_context(
                    self._entrance.slot(metrics.deadline, resumed=resumed)
                )
                if name is not None and self._store is not None:
                    with told():
                        claim = name.claim(request)
                        answer = await self._answers.named(answer, claim, request, metrics)
                return Begun(answer, slot)

            answer = events_of(
                *(begin, self._mesh),
                is_new=not has_begun,
                has_heartbeats=has_begun or HEARTBEATS in metadata,
                chunk_interval_s=chunk_interval_s,
            )
            async with aclosing(answer) as events:
                async for event in events:
                    yield event

    def _chunk_interval_s(self, metadata: Iterable[tuple[str, str | bytes]]) -> float:
        return max(self._defaults.chunk_interval_s, read_chunk_interval(metadata))

    async def Score(  # noqa: N802
        self, request: scoring_pb2.ScoreRequest, context: ScoreContext
    ) -> AsyncGenerator[scoring_pb2.ScoreResponse, None]:
        """Stream the likelihood of a text, once there is room for the work."""
        with (
            RequestMetrics("Score", _deadline(context)) as metrics,
            self._accounts.answering(metrics, request.ByteSize()),
        ):
            self._entrance.check(metrics.deadline, resumed=False)
            target = self._answers.target()
            scoring = await read_scoring(request, self._prompts, target)
            metrics.checked(scoring.num_tokens, target)
            made = scoring.pieces(self._mesh, metrics)
            told = admitted(made, scoring.num_tokens, self._entrance, metrics.deadline)
            async with aclosing(made), aclosing(told) as pieces:
                async for piece in pieces:
                    yield piece
            metrics.succeeded(None)

    async def ListModels(  # noqa: N802
        self,
        request: served_model_pb2.ListModelsRequest,
        context: ListContext,  # noqa: ARG002
    ) -> served_model_pb2.ListModelsResponse:
        """Describe the target, its drafters and the strategies."""
        check_page(request)
        model = served_model(self._answers.target(), self._mesh, self._defaults)
        return served_model_pb2.ListModelsResponse(models=[model])


def _deadline(
    context: GenerateContext | ResumeContext | CompleteContext | ScoreContext | OneOfMany,
) -> float:
    remaining = context.time_remaining()
    return asyncio.get_running_loop().time() + (REQUEST_SECONDS if remaining is None else remaining)

"""Peers on real sockets whose models are hashes, and which fail on demand."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import ClassVar
from uuid import uuid4

import grpc.aio
import numpy as np
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from tests.draft_shaper import DraftShaper
from tests.orchestrator.model import (
    TOKENIZER_JSON,
    drafter_logits,
    model_info,
    target_logits,
)

from specmesh.decoding.acceptance import verify
from specmesh.decoding.drafting import draw_children
from specmesh.decoding.logprobs import logprobs_along, logprobs_of_nodes
from specmesh.decoding.prefix import BLOCK_TOKENS, PrefixChain
from specmesh.decoding.processing.processor import LogitProcessor
from specmesh.mesh.v1alpha1 import (
    confidence_pb2,
    confidence_pb2_grpc,
    cost_pb2,
    drafter_pb2,
    drafter_pb2_grpc,
    model_service_pb2,
    model_service_pb2_grpc,
    tokens_pb2,
    verifier_pb2,
    verifier_pb2_grpc,
)
from specmesh.orchestrator.replicas.calls.cause import Cause, Moment
from specmesh.serving.codec.verdicts import write_verdict
from specmesh.serving.codec.wire import (
    read_distributions,
    read_sampling,
    read_tree,
    write_choices,
    write_distributions,
)
from specmesh.serving.errors import FailedPreconditionStatus
from specmesh.serving.rpc.interceptors import CallInterceptor, exchange
from specmesh.serving.rpc.many import answer_many
from specmesh.v1 import model_pb2

START = Cause("start", Moment(0.0), lambda: Moment(0.0))
"""Of calls that no strategy asked for."""

Fault = Callable[[], Awaitable[None]]
"""Runs before a call is answered: raises, waits, or breaks something."""

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def raising(*errors: Exception) -> list[Fault]:
    """One fault for each error."""

    def fault(error: Exception) -> Fault:
        async def fail() -> None:
            raise error

        return fail

    return [fault(error) for error in errors]


class Hold:
    """Keeps a call waiting until it is released."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.released = asyncio.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await self.released.wait()


async def hang() -> None:
    """Never answer."""
    await asyncio.Event().wait()


async def passing() -> None:
    """No fault at all."""


class Peer(model_service_pb2_grpc.ModelServiceServicer):
    """A replica that plays its ``faults`` first, one a call, then ``always``."""

    service: ClassVar[str]

    def __init__(self, info: model_pb2.ModelInfo, tokenizer_json: str = TOKENIZER_JSON) -> None:
        self.info = info
        self.tokenizer_json = tokenizer_json
        self.chat_template: model_service_pb2.ChatTemplate | None = None
        self.address = "127.0.0.1:0"
        self.requests: list[verifier_pb2.VerifyRequest | drafter_pb2.DraftRequest] = []
        self.faults: deque[Fault] = deque()
        self.always: Fault = passing
        self.arrived = asyncio.Event()
        self.told = asyncio.Event()
        """Set once somebody knows what it serves."""
        self.cancelled = asyncio.Event()
        self.num_open_calls = 0
        """Calls of VerifyEach, VerifyMany, DraftEach or DraftMany so far."""
        self.process_id = ""
        self.instance = ""
        self.forward_times: list[model_service_pb2.ForwardTime] = []
        self._held: dict[bytes, list[int]] = {}
        self._server: grpc.aio.Server | None = None

    async def start(self, process_id: str = "") -> None:
        """Listen, at the address of the last time if there was one; as a new process unless it is
        told its ``process_id``."""
        self._health = health.aio.HealthServicer()
        self.process_id = process_id or uuid4().hex
        options = [("grpc.so_reuseport", 0)]
        interceptors = [CallInterceptor()]
        self._server = grpc.aio.server(interceptors=interceptors, options=options)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(self, self._server)
        self._register(self._server)
        port = self._server.add_insecure_port(self.address)
        self.address = f"127.0.0.1:{port}"
        await self.set_health(SERVING)
        await self._server.start()

    async def set_health(self, status: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        await self._health.set(self.service, status)

    async def die(self) -> None:
        """Break off every call and stop listening."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(None)

    def forget(self) -> None:
        """Lose every prefix held."""
        self._held.clear()

    async def GetModel(self, request, context):  # noqa: N802
        return model_service_pb2.GetModelResponse(
            model=self.info,
            process_id=self.process_id,
            instance=self.instance,
            forward_times=self.forward_times,
        )

    async def GetTokenizer(self, request, context):  # noqa: N802
        yield model_service_pb2.GetTokenizerResponse(
            data=self.tokenizer_json.encode(), chat_template=self.chat_template
        )
        self.told.set()

    def _register(self, server: grpc.aio.Server) -> None:
        raise NotImplementedError

    async def _receive(self, request) -> list[int]:
        """Play the next fault, then read the request's prefix."""
        self.requests.append(request)
        self.arrived.set()
        await self._play(self.faults.popleft() if self.faults else self.always)
        return self._resolve(request.prefix)

    async def _play(self, fault: Fault) -> None:
        try:
            await fault()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    def _resolve(self, prefix: tokens_pb2.Prefix) -> list[int]:
        base: list[int] = []
        if prefix.base_length:
            if prefix.base_digest not in self._held:
                raise FailedPreconditionStatus("PREFIX_UNKNOWN", "never seen")
            base = self._held[prefix.base_digest]
            assert len(base) == prefix.base_length
        tokens = [*base, *prefix.token_ids]
        for number, digest in enumerate(PrefixChain(tokens).digests, start=1):
            self._held[digest] = tokens[: number * BLOCK_TOKENS]
        return tokens


class Verifier(Peer, verifier_pb2_grpc.VerifierServiceServicer):
    """The target that ``model.target_only`` speaks for."""

    service = "specmesh.mesh.v1alpha1.VerifierService"

    def __init__(self, name: str = "toy", **changes: object) -> None:
        super().__init__(model_info(name, **changes))
        self.corrupt: Callable[[verifier_pb2.VerifyResponse], None] = lambda message: None
        self.cost = cost_pb2.ComputeCost()
        self.heads_depth = 6
        """How many levels its heads draft; 0 if they are broken."""
        self.heads_agreement = 0.6
        self.logits: Callable[[list[int]], np.ndarray] = target_logits
        self.decodes_on = False
        """Whether it sends further tokens."""
        self.num_collected = 4
        """Further tokens that come in one response, if they may."""
        self.further_faults: deque[Fault] = deque()
        """Played one a further token, before it is sent."""

    def _register(self, server: grpc.aio.Server) -> None:
        verifier_pb2_grpc.add_VerifierServiceServicer_to_server(self, server)

    async def Verify(self, request, context):  # noqa: N802
        return self._verdict(await self._receive(request), request)

    async def _responses(self, request, context):
        """The verdict, and further tokens."""
        response = await self.Verify(request, context)
        prefix = self._resolve(request.prefix) if self.decodes_on else []
        num_left = request.num_further_tokens if self.decodes_on else 0
        number, token = 1, response.next_token_id
        while num_left:
            response.number, response.has_more = number, True
            yield response
            collected = []
            for _ in range(min(num_left, self.num_collected if request.collect_ms else 1)):
                await self._play(self.further_faults.popleft() if self.further_faults else passing)
                prefix = self._resolve(tokens_pb2.Prefix(token_ids=[*prefix, token]))
                collected.append(self._verdict(prefix, request))
                token = collected[-1].next_token_id
            response, *others = collected
            response.collected_token_ids.extend(each.next_token_id for each in others)
            num_left -= len(collected)
            number += 1
            response.number = number
        yield response

    def _verdict(self, prefix, request) -> verifier_pb2.VerifyResponse:
        tree = read_tree(request.tree, self.info.vocab_size)
        ends = [[*prefix, *tree.tokens_on(tree.path(node))] for node in range(len(tree) + 1)]
        logits = np.stack([self.logits(end) for end in ends])
        sampling = read_sampling(request.sampling)
        distributions = read_distributions(request.tree.draft_distributions)
        rows = LogitProcessor(sampling, prefix).rows(logits, tree)
        verdict = verify(
            *(tree, rows, sampling, len(prefix), distributions),
            num_bonus_candidates=request.num_bonus_candidates,
        )
        if request.HasField("num_top_logprobs"):
            path = (verdict.accepted_nodes, verdict.next_token)
            logprobs = logprobs_along(tree, logits, *path, request.num_top_logprobs)
            verdict = replace(verdict, logprobs=logprobs)
        if request.HasField("num_node_logprobs"):
            found = logprobs_of_nodes(tree, logits, request.num_node_logprobs)
            verdict = replace(verdict, node_logprobs=found)
        response = write_verdict(verdict, self.cost)
        if request.HasField("next_draft") and self.heads_depth:
            accepted = tree.tokens_on(verdict.accepted_nodes)
            self._draft(response.next_draft, [*prefix, *accepted, verdict.next_token], request)
        self.corrupt(response)
        return response

    def _draft(self, message, text: list[int], request) -> None:
        """Draft below ``text`` what the request asks for."""
        asked = request.next_draft
        drafts = drafter_pb2.DraftRequest(
            depth=asked.depth,
            growth=asked.growth if asked.HasField("growth") else None,
            stop=asked.stop if asked.HasField("stop") else None,
            num_choices=asked.num_choices,
            sampling=request.sampling,
        )
        drafts.sampling.seed = asked.seed
        growth, paths = DraftShaper(drafts), [text]
        for _ in range(min(asked.depth, self.heads_depth)):
            grow(message, paths, growth, drafts, self.heads_agreement)
            if growth.ended:
                return

    async def VerifyEach(self, request_iterator, context):  # noqa: N802
        self.num_open_calls += 1
        async for message in request_iterator:
            async with (
                exchange(message.trace_context),
                aclosing(self._responses(message.request, context)) as responses,
            ):
                async for response in responses:
                    yield verifier_pb2.VerifyEachResponse(response=response)

    def VerifyMany(self, request_iterator, context):  # noqa: N802
        self.num_open_calls += 1

        async def each(request, _, send):
            async with aclosing(self._responses(request.request, context)) as responses:
                async for response in responses:
                    send(verifier_pb2.VerifyEachResponse(response=response))

        return answer_many(request_iterator, context, each, verifier_pb2.VerifyManyResponse)


def grow(
    message: drafter_pb2.DraftResponse,
    paths: list[list[int]],
    growth: DraftShaper,
    request: drafter_pb2.DraftRequest,
    agreement: float,
) -> None:
    """One more level."""
    sampling = read_sampling(request.sampling)
    tips = growth.tips
    drawn = [
        draw_children(
            LogitProcessor(sampling, paths[tip]).row(drafter_logits(paths[tip], agreement)),
            *(sampling, len(paths[tip]), growth.num_candidates),
            num_choices=max(request.num_choices, growth.num_candidates),
        )
        for tip in tips
    ]
    for tip, each, children in zip(tips, drawn, growth.grow(drawn), strict=True):
        message.token_ids.extend(children)
        message.parents.extend([tip] * len(children))
        paths.extend([*paths[tip], child] for child in children)
        if each.distribution is not None and children:
            message.draft_distributions.extend(write_distributions({tip: each.distribution}))
        if each.choices is not None and request.num_choices and children:
            told = each.choices.first(request.num_choices)
            message.choices.extend(write_choices({tip: told}))
            message.entropies.append(told.entropy)


class Drafter(Peer, drafter_pb2_grpc.DrafterServiceServicer):
    """Says what the target would, with probability ``agreement`` a token."""

    service = "specmesh.mesh.v1alpha1.DrafterService"

    def __init__(self, name: str = "small", agreement: float = 0.8, **changes: object) -> None:
        super().__init__(model_info(name, **changes))
        self._agreement = agreement
        self.max_levels = 256
        """Ends its drafts early."""
        self.level_ms = 0.0
        """What it says a level takes; 0: it doesn't say."""
        self.after_message: Fault = passing
        self.corrupt: Callable[[drafter_pb2.DraftResponse], None] = lambda message: None
        """Spoils each message before it leaves."""

    def _register(self, server: grpc.aio.Server) -> None:
        drafter_pb2_grpc.add_DrafterServiceServicer_to_server(self, server)

    async def Draft(self, request, context) -> AsyncIterator[drafter_pb2.DraftResponse]:  # noqa: N802
        prefix = await self._receive(request)
        tree = read_tree(request.tree, self.info.vocab_size)
        paths = [[*prefix, *tree.tokens_on(tree.path(node))] for node in range(len(tree) + 1)]
        growth = DraftShaper(request)
        depth = min(request.depth, self.max_levels)
        message = drafter_pb2.DraftResponse()
        for level in range(1, depth + 1):
            if self.level_ms:
                message.cost.forward_ms += self.level_ms
            grow(message, paths, growth, request, self._agreement)
            if level % request.levels_per_message == 0 or level == depth or growth.ended:
                self.corrupt(message)
                yield message
                message = drafter_pb2.DraftResponse()
                await self._play(self.after_message)
            if growth.ended:
                return

    async def DraftEach(self, request_iterator, context):  # noqa: N802
        self.num_open_calls += 1
        async for message in request_iterator:
            async with exchange(message.trace_context):
                async for response in self.Draft(message.request, context):
                    yield drafter_pb2.DraftEachResponse(response=response)
            yield drafter_pb2.DraftEachResponse(last=True)

    def DraftMany(self, request_iterator, context):  # noqa: N802
        self.num_open_calls += 1

        async def each(request, _, send):
            async with aclosing(self.Draft(request.request, context)) as responses:
                async for response in responses:
                    send(drafter_pb2.DraftEachResponse(response=response))
            send(drafter_pb2.DraftEachResponse(last=True))

        return answer_many(request_iterator, context, each, drafter_pb2.DraftManyResponse)


class Filter(Peer, confidence_pb2_grpc.ConfidenceServiceServicer):
    """Keeps tokens whose best probability is above ``threshold``."""

    service = "specmesh.mesh.v1alpha1.ConfidenceService"

    def __init__(self, threshold: float = 1.0) -> None:
        super().__init__(model_pb2.ModelInfo())
        self._threshold = threshold
        self.assessed: list[confidence_pb2.AssessRequest] = []
        self.before_release: Fault = passing
        self.num_responses = 2
        """The most responses that it sends: decisions, and their release."""

    def _register(self, server: grpc.aio.Server) -> None:
        confidence_pb2_grpc.add_ConfidenceServiceServicer_to_server(self, server)

    async def AssessEach(self, request_iterator, context):  # noqa: N802
        self.num_open_calls += 1
        async for message in request_iterator:
            async with exchange(message.trace_context):
                num_left = self.num_responses
                async for response in self._assess(message.request):
                    if num_left:
                        yield confidence_pb2.AssessEachResponse(response=response)
                        num_left -= 1
            yield confidence_pb2.AssessEachResponse(last=True)

    async def _assess(self, request) -> AsyncIterator[confidence_pb2.AssessResponse]:
        self.assessed.append(request)
        self.arrived.set()
        await self._play(self.faults.popleft() if self.faults else self.always)
        assessment = confidence_pb2.Assessment(threshold=self._threshold)
        for position in request.positions:
            keep = position.probabilities[0] > self._threshold
            assessment.decisions.add(keep=keep, score=position.probabilities[0])
        yield confidence_pb2.AssessResponse(assessment=assessment)
        if not all(decision.keep for decision in assessment.decisions):
            await self._play(self.before_release)
            release = confidence_pb2.Release(batch_size=1)
            yield confidence_pb2.AssessResponse(release=release)

"""VerifierService over a language model: it turns a message into domain values, makes one call, and
answers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import grpc.aio

from specmesh.decoding.acceptance import Verdict, verify
from specmesh.decoding.bonus import MAX_BONUS_CANDIDATES
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.logprobs import MAX_TOP_LOGPROBS, logprobs_along, logprobs_of_nodes
from specmesh.decoding.processing.masks import TokenMask
from specmesh.decoding.processing.processor import LogitProcessor
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.tree import TokenTree
from specmesh.decoding.winners import OwnTokens
from specmesh.inference.engine.engine import Engine
from specmesh.inference.engine.heads.target_with_heads import TargetWithHeads
from specmesh.inference.engine.job import Job, Steps
from specmesh.inference.grammar.grammars import Grammars
from specmesh.inference.model import ForwardRequest, LanguageModel, Logits
from specmesh.inference.service.accounts import add_cost, record_cost, round_to_blocks
from specmesh.inference.service.prefixes import PrefixResolver
from specmesh.mesh.v1alpha1 import cost_pb2, verifier_pb2, verifier_pb2_grpc
from specmesh.serving.codec.kept_sampling import kept_sampling
from specmesh.serving.codec.verdicts import write_verdict
from specmesh.serving.codec.wire import read_distributions, read_tree
from specmesh.serving.errors import FailedPreconditionStatus
from specmesh.serving.rpc.interceptors import exchange
from specmesh.serving.rpc.many import Send, answer_many
from specmesh.verifier.next_draft import RequestedDraft, draft_below, read_next_draft

VerifyJob = Job[verifier_pb2.VerifyResponse]
VerifySteps = Steps[verifier_pb2.VerifyResponse]

Context = grpc.aio.ServicerContext[verifier_pb2.VerifyRequest, verifier_pb2.VerifyResponse]
EachContext = grpc.aio.ServicerContext[
    verifier_pb2.VerifyEachRequest, verifier_pb2.VerifyEachResponse
]

ManyContext = grpc.aio.ServicerContext[
    verifier_pb2.VerifyManyRequest, verifier_pb2.VerifyManyResponse
]


class VerifierServicer(verifier_pb2_grpc.VerifierServiceServicer):
    """Answers Verify: a verdict is a pure function of its request, independent of caches."""

    def __init__(
        self,
        model: LanguageModel,
        engine: Engine,
        prefixes: PrefixResolver,
        grammars: Grammars | None = None,
    ) -> None:
        self._model = model
        self._engine = engine
        self._prefixes = prefixes
        self._grammars = grammars

    async def Verify(  # noqa: N802
        self,
        request: verifier_pb2.VerifyRequest,
        context: Context,  # noqa: ARG002
    ) -> verifier_pb2.VerifyResponse:
        """Return the verdict on one draft."""
        return await self._respond(request)

    async def VerifyEach(  # noqa: N802
        self,
        request_iterator: AsyncIterator[verifier_pb2.VerifyEachRequest],
        context: EachContext,  # noqa: ARG002
    ) -> AsyncIterator[verifier_pb2.VerifyEachResponse]:
        """Answer each request of the call in turn, as ``Verify`` does."""
        async for message in request_iterator:
            async with exchange(message.trace_context):
                response = await self._respond(message.request)
                yield verifier_pb2.VerifyEachResponse(response=response)

    def VerifyMany(  # noqa: N802
        self,
        request_iterator: AsyncIterator[Any],  # of HeldMessage
        context: ManyContext,
    ) -> AsyncIterator[verifier_pb2.VerifyManyResponse]:
        """Answer the requests of the call concurrently, each as ``Verify`` does."""
        return answer_many(request_iterator, context, self._each, verifier_pb2.VerifyManyResponse)

    async def _each(
        self, request: verifier_pb2.VerifyRequest, send: Send[verifier_pb2.VerifyEachResponse]
    ) -> None:
        send(verifier_pb2.VerifyEachResponse(response=await self._respond(request)))

    async def _respond(self, request: verifier_pb2.VerifyRequest) -> verifier_pb2.VerifyResponse:
        sampling = kept_sampling(request.sampling)
        tree = read_tree(request.tree, self._model.description.vocab_size)
        self._check_shape(tree)
        distributions = read_distributions(request.tree.draft_distributions)
        num_bonus_candidates = _num_bonus_candidates(request)
        num_top_logprobs = _num_logprobs(request, "num_top_logprobs")
        num_node_logprobs = _num_logprobs(request, "num_node_logprobs")
        next_draft = read_next_draft(request, sampling)
        prefix = await self._prefixes.resolve(request.prefix)
        self._check_room(len(prefix), tree)
        began = time.perf_counter()
        mask = await self._mask(sampling, prefix)
        grammar_ms = 0.0 if mask is None else (time.perf_counter() - began) * 1e3
        processor = LogitProcessor(sampling, prefix, mask)

        own = OwnTokens.of(sampling, len(prefix))

        def judge(logits: Logits) -> Verdict:
            rows = processor.rows(logits, tree)
            verdict = verify(
                *(tree, rows, sampling, len(prefix)),
                *(distributions, num_bonus_candidates, own),
            )
            if num_top_logprobs is not None:
                path = (verdict.accepted_nodes, verdict.next_token)
                found = logprobs_along(tree, logits, *path, num_top_logprobs)
                verdict = replace(verdict, logprobs=found)
            if num_node_logprobs is not None:
                found = logprobs_of_nodes(tree, logits, num_node_logprobs)
                verdict = replace(verdict, node_logprobs=found)
            return verdict

        def work(job: VerifyJob) -> VerifySteps:
            return self._verify(job, prefix, tree, own, judge, processor, next_draft)

        response = await self._engine.run(work)
        record_cost(_total_cost(response))
        round_to_blocks(response.cost, len(prefix))
        response.cost.grammar_ms = grammar_ms
        return response

    def _verify(
        self,
        job: VerifyJob,
        prefix: Sequence[int],
        tree: TokenTree,
        own: OwnTokens | None,
        judge: Callable[[Logits], Verdict],
        processor: LogitProcessor,
        next_draft: RequestedDraft | None,
    ) -> VerifySteps:
        began = time.perf_counter()
        model = self._model
        room = len(tree)
        if next_draft is not None and isinstance(model, TargetWithHeads):
            room = model.room(len(prefix), tree, next_draft.shape.num_nodes)
        sequence = model.open(prefix, job.cancellation, room)
        accepted: Sequence[int] = ()
        try:
            logits = yield ForwardRequest(sequence, tree, own)
            forward_ms = (time.perf_counter() - began) * 1e3
            verdict = judge(logits)
            accepted = verdict.accepted_nodes
            cost = cost_pb2.ComputeCost(
                queue_ms=job.queue_ms,
                forward_ms=forward_ms,
                num_cached_tokens=sequence.num_cached_tokens,
                num_computed_tokens=sequence.num_computed_tokens,
                num_batch_calls=sequence.latest_forward.num_calls,
                num_batch_tokens=sequence.latest_forward.num_rows,
            )
            response = write_verdict(verdict, cost)
        finally:
            sequence.close(accepted)  # before heads draft: other calls may need its KV cache
        if next_draft is not None and isinstance(model, TargetWithHeads):
            path = (*tree.tokens_on(accepted), verdict.next_token)
            end = accepted[-1] if accepted else 0
            drafted = yield from draft_below(model, sequence, end, processor, path, next_draft)
            if drafted is not None:
                response.next_draft.CopyFrom(drafted)
        yield response

    async def _mask(self, sampling: Sampling, prefix: Sequence[int]) -> TokenMask | None:
        if sampling.grammar is None:
            return None
        if self._grammars is None:
            name = self._model.description.name
            raise FailedPreconditionStatus(
                *("UNSUPPORTED_FEATURE", f"{name!r} can't follow a grammar"),
                {"feature": "GRAMMARS"},
            )
        return await self._grammars.mask(sampling, prefix)

    def _check_shape(self, tree: TokenTree) -> None:
        description = self._model.description
        if not description.scores_trees and not tree.is_chain:
            raise FailedPreconditionStatus(
                "UNSUPPORTED_FEATURE",
                f"backend {description.backend!r} verifies only chains, but this is a tree",
                {"feature": "TREES"},
            )

    def _check_room(self, prefix_length: int, tree: TokenTree) -> None:
        limit = self._model.description.context_tokens
        deepest = max(tree.depths, default=0)
        if limit and prefix_length + deepest > limit:
            raise InvalidField(
                "prefix",
                f"{prefix_length} tokens plus a tree of depth {deepest} "
                f"exceed the context of {limit} tokens",
            )


def _total_cost(response: verifier_pb2.VerifyResponse) -> cost_pb2.ComputeCost:
    """Return the cost of the verdict and of the next draft."""
    if not response.HasField("next_draft"):
        return response.cost
    total = cost_pb2.ComputeCost()
    for part in (response.cost, response.next_draft.cost):
        add_cost(total, part)
    return total


def _num_bonus_candidates(request: verifier_pb2.VerifyRequest) -> int:
    if request.num_bonus_candidates > MAX_BONUS_CANDIDATES:
        raise InvalidField("num_bonus_candidates", f"must be in [0, {MAX_BONUS_CANDIDATES}]")
    return request.num_bonus_candidates


def _num_logprobs(
    request: verifier_pb2.VerifyRequest, field: Literal["num_top_logprobs", "num_node_logprobs"]
) -> int | None:
    if not request.HasField(field):
        return None
    number: int = getattr(request, field)
    if number > MAX_TOP_LOGPROBS:
        raise InvalidField(field, f"must be in [0, {MAX_TOP_LOGPROBS}]")
    return number

"""VerifierService over a language model: it turns a message into domain values, makes one call, and
answers."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, Literal

import grpc.aio

from specmesh.decoding.bonus import MAX_BONUS_CANDIDATES
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.logprobs import MAX_TOP_LOGPROBS
from specmesh.decoding.processing.masks import TokenMask
from specmesh.decoding.processing.processor import LogitProcessor
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.tree import TokenTree
from specmesh.inference.engine.engine import Engine
from specmesh.inference.grammar.grammars import Grammars
from specmesh.inference.model import LanguageModel
from specmesh.inference.service.accounts import (
    FurtherTokens,
    add_cost,
    record_cost,
    round_to_blocks,
)
from specmesh.inference.service.prefixes import PrefixResolver
from specmesh.mesh.v1alpha1 import cost_pb2, verifier_pb2, verifier_pb2_grpc
from specmesh.serving.codec.kept_sampling import kept_sampling
from specmesh.serving.codec.token_choice import check_choice, check_ids
from specmesh.serving.codec.wire import read_distributions, read_tree
from specmesh.serving.errors import FailedPreconditionStatus
from specmesh.serving.rpc.interceptors import exchange
from specmesh.serving.rpc.many import Send, answer_many
from specmesh.serving.rpc.one_of_many import OneOfMany
from specmesh.verifier.next_draft import read_next_draft
from specmesh.verifier.verification import Verification
from specmesh.verifier.worthwhile_calls import WorthwhileCalls

MAX_FURTHER = 255
"""The most further tokens that a call may ask for."""
MAX_COLLECT_MS = 1000
"""The longest time for which they may be collected."""

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
        self._worthwhile_calls = WorthwhileCalls()

    async def Verify(  # noqa: N802
        self,
        request: verifier_pb2.VerifyRequest,
        context: Context,  # noqa: ARG002
    ) -> verifier_pb2.VerifyResponse:
        """Return the verdict on one draft."""
        return await self._verdict(await self._read(request, further=False))

    async def VerifyEach(  # noqa: N802
        self,
        request_iterator: AsyncIterator[verifier_pb2.VerifyEachRequest],
        context: EachContext,  # noqa: ARG002
    ) -> AsyncIterator[verifier_pb2.VerifyEachResponse]:
        """Answer each request of the call in turn: as ``Verify``, and with further tokens."""
        async for message in request_iterator:
            async with (
                exchange(message.trace_context),
                aclosing(self._responses(message.request)) as responses,
            ):
                async for response in responses:
                    yield verifier_pb2.VerifyEachResponse(response=response)

    def VerifyMany(  # noqa: N802
        self,
        request_iterator: AsyncIterator[Any],  # of HeldMessage
        context: ManyContext,
    ) -> AsyncIterator[verifier_pb2.VerifyManyResponse]:
        """Answer the requests of the call concurrently, each as ``VerifyEach`` does."""
        return answer_many(request_iterator, context, self._each, verifier_pb2.VerifyManyResponse)

    async def _each(
        self,
        request: verifier_pb2.VerifyEachRequest,
        context: OneOfMany,  # noqa: ARG002
        send: Send[verifier_pb2.VerifyEachResponse],
    ) -> None:
        async with aclosing(self._responses(request.request)) as responses:
            async for response in responses:
                send(verifier_pb2.VerifyEachResponse(response=response))

    async def _responses(
        self, request: verifier_pb2.VerifyRequest
    ) -> AsyncGenerator[verifier_pb2.VerifyResponse, None]:
        """Yield the verdict on the draft of ``request``, and then any further tokens."""
        verification = await self._read(request)
        if not verification.num_further:
            yield await self._verdict(verification)
            return
        verdicts = FurtherTokens()
        async with aclosing(self._engine.stream(verification.steps)) as responses:
            async for response in responses:
                if verdicts.number == 0:
                    _finish_first(response, len(verification.prefix))
                    verdicts.begin()
                else:
                    verdicts.record(_total_cost(response))
                yield response

    async def _verdict(self, verification: Verification) -> verifier_pb2.VerifyResponse:
        """Return the verdict of a verification without further tokens."""
        response = await self._engine.run(verification.steps)
        _finish_first(response, len(verification.prefix))
        return response

    async def _read(
        self, request: verifier_pb2.VerifyRequest, *, further: bool = True
    ) -> Verification:
        """Return what ``request`` asks for; without ``further`` tokens, it asks for none."""
        sampling, vocab_size = kept_sampling(request.sampling), self._model.description.vocab_size
        if sampling.changes_logits:
            check_ids(sampling, vocab_size)
            check_choice(sampling, vocab_size)
        tree = read_tree(request.tree, vocab_size)
        self._check_shape(tree)
        distributions = read_distributions(request.tree.draft_distributions)
        num_bonus_candidates = _num_bonus_candidates(request)
        num_top_logprobs = _num_logprobs(request, "num_top_logprobs")
        num_node_logprobs = _num_logprobs(request, "num_node_logprobs")
        num_further, collect_s = _num_further(request) * further, _collect_s(request)
        next_draft = read_next_draft(request, sampling)
        prefix = await self._prefixes.resolve(request.prefix)
        self._check_room(len(prefix), tree)
        began = time.perf_counter()
        mask = await self._mask(sampling, prefix)
        grammar_ms = 0.0 if mask is None else (time.perf_counter() - began) * 1e3
        return Verification(
            model=self._model,
            worthwhile_calls=self._worthwhile_calls,
            prefix=prefix,
            tree=tree,
            sampling=sampling,
            processor=LogitProcessor(sampling, prefix, mask),
            grammar_ms=grammar_ms,
            distributions=distributions,
            num_bonus_candidates=num_bonus_candidates,
            num_top_logprobs=num_top_logprobs,
            num_node_logprobs=num_node_logprobs,
            next_draft=next_draft,
            num_further=num_further,
            collect_s=collect_s,
        )

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


def _finish_first(response: verifier_pb2.VerifyResponse, num_prefix_tokens: int) -> None:
    """Complete the cost of a call's first response, and record it."""
    record_cost(_total_cost(response))
    round_to_blocks(response.cost, num_prefix_tokens)


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


def _num_further(request: verifier_pb2.VerifyRequest) -> int:
    num_further = request.num_further_tokens
    if num_further > MAX_FURTHER:
        raise InvalidField("num_further_tokens", f"must be in [0, {MAX_FURTHER}]")
    wants_more = request.tree.token_ids or request.num_bonus_candidates
    if num_further and (wants_more or request.HasField("next_draft")):
        reason = "must be 0 with a tree, a next_draft or bonus candidates"
        raise InvalidField("num_further_tokens", reason)
    return num_further


def _collect_s(request: verifier_pb2.VerifyRequest) -> float:
    if request.collect_ms > MAX_COLLECT_MS:
        raise InvalidField("collect_ms", f"must be in [0, {MAX_COLLECT_MS}]")
    if request.collect_ms and request.HasField("num_top_logprobs"):
        raise InvalidField("collect_ms", "must be 0 with log-probabilities")
    return request.collect_ms / 1e3


def _num_logprobs(
    request: verifier_pb2.VerifyRequest, field: Literal["num_top_logprobs", "num_node_logprobs"]
) -> int | None:
    if not request.HasField(field):
        return None
    number: int = getattr(request, field)
    if number > MAX_TOP_LOGPROBS:
        raise InvalidField(field, f"must be in [0, {MAX_TOP_LOGPROBS}]")
    return number

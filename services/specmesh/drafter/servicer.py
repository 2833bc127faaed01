"""DrafterService over a language model: it turns a message into domain values, makes one call, and
answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import grpc.aio

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.processing.processor import LogitProcessor
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.growth import TreeGrowth
from specmesh.decoding.trees.shape import TreeShape
from specmesh.decoding.trees.tree import TokenTree
from specmesh.inference.engine.engine import Engine
from specmesh.inference.engine.job import Job, Steps
from specmesh.inference.grammar.grammars import Grammars
from specmesh.inference.model import ForwardRequest, LanguageModel
from specmesh.inference.service.accounts import CostMeter, add_cost, record_cost, round_to_blocks
from specmesh.inference.service.growth import (
    MAX_CHOICES,
    MAX_DEPTH,
    DraftShape,
    GrowingDraft,
    TreeLevel,
)
from specmesh.inference.service.levels import write_levels
from specmesh.inference.service.prefixes import PrefixResolver
from specmesh.mesh.v1alpha1 import cost_pb2, drafter_pb2, drafter_pb2_grpc
from specmesh.serving.codec.draft_rules import read_growth, read_stop, read_tree_shape
from specmesh.serving.codec.kept_sampling import kept_sampling
from specmesh.serving.codec.wire import MAX_TREE_NODES, read_tree
from specmesh.serving.rpc.interceptors import exchange
from specmesh.serving.rpc.many import Send, answer_many
from specmesh.serving.rpc.one_of_many import OneOfMany

DraftJob = Job[drafter_pb2.DraftResponse]
DraftSteps = Steps[drafter_pb2.DraftResponse]

Context = grpc.aio.ServicerContext[drafter_pb2.DraftRequest, drafter_pb2.DraftResponse]
EachContext = grpc.aio.ServicerContext[drafter_pb2.DraftEachRequest, drafter_pb2.DraftEachResponse]
ManyContext = grpc.aio.ServicerContext[drafter_pb2.DraftManyRequest, drafter_pb2.DraftManyResponse]


class DrafterServicer(drafter_pb2_grpc.DrafterServiceServicer):
    """Answers Draft; a cancelled call stops within one level."""

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

    async def Draft(  # noqa: N802
        self,
        request: drafter_pb2.DraftRequest,
        context: Context | EachContext | ManyContext,  # noqa: ARG002
    ) -> AsyncGenerator[drafter_pb2.DraftResponse, None]:
        """Yield the draft as it grows, a few levels per message."""
        sampling = kept_sampling(request.sampling)
        tree = read_tree(request.tree, self._model.description.vocab_size)
        shape = read_shape(request, len(tree))
        prefix = await self._prefixes.resolve(request.prefix)
        levels_per_message = request.levels_per_message or 1
        mask = None
        if self._grammars is not None:
            mask = await self._grammars.draft_mask(sampling, prefix)
        processor = LogitProcessor(sampling, prefix, mask)

        def work(job: DraftJob) -> DraftSteps:
            return self._draft(job, prefix, tree, shape, sampling, processor, levels_per_message)

        total = cost_pb2.ComputeCost()
        unread = True
        try:
            async with aclosing(self._engine.stream(work)) as responses:
                async for response in responses:
                    add_cost(total, response.cost)
                    if unread and response.cost.num_computed_tokens:  # it includes the prefix
                        round_to_blocks(response.cost, len(prefix))
                        unread = False
                    yield response
        finally:
            record_cost(total)

    async def DraftEach(  # noqa: N802
        self,
        request_iterator: AsyncIterator[drafter_pb2.DraftEachRequest],
        context: EachContext,
    ) -> AsyncIterator[drafter_pb2.DraftEachResponse]:
        """Answer each request of the call in turn, as ``Draft`` does."""
        async for message in request_iterator:
            async with (
                exchange(message.trace_context),
                aclosing(self.Draft(message.request, context)) as responses,
            ):
                async for response in responses:
                    yield drafter_pb2.DraftEachResponse(response=response)
            yield drafter_pb2.DraftEachResponse(last=True)

    def DraftMany(  # noqa: N802
        self,
        request_iterator: AsyncIterator[Any],  # of HeldMessage
        context: ManyContext,
    ) -> AsyncIterator[drafter_pb2.DraftManyResponse]:
        """Make the drafts that the call asks for concurrently, each as ``Draft`` does."""

        async def each(
            request: drafter_pb2.DraftEachRequest,
            _: OneOfMany,
            send: Send[drafter_pb2.DraftEachResponse],
        ) -> None:
            async with aclosing(self.Draft(request.request, context)) as responses:
                async for response in responses:
                    send(drafter_pb2.DraftEachResponse(response=response))
            send(drafter_pb2.DraftEachResponse(last=True))

        return answer_many(request_iterator, context, each, drafter_pb2.DraftManyResponse)

    def _draft(
        self,
        job: DraftJob,
        prefix: Sequence[int],
        tree: TokenTree,
        shape: DraftShape,
        sampling: Sampling,
        processor: LogitProcessor,
        levels_per_message: int,
    ) -> DraftSteps:
        shape = self._fit(shape, tree, len(prefix))
        sequence = job.open(self._model, prefix, len(tree) + shape.num_nodes)
        meter = CostMeter(sequence, job.queue_ms)
        growth = GrowingDraft(tree, shape, sampling, processor)
        sent = len(tree)
        pending: list[TreeLevel] = []
        try:
            while not growth.ended:
                level = growth.grow_forced()
                if level is None:
                    level = growth.grow((yield ForwardRequest(sequence, growth.tree)))
                pending.append(level)
                if growth.num_levels % levels_per_message == 0 or growth.ended:
                    if len(growth.tree) > sent:
                        yield write_levels(pending, sent, meter.read())
                    sent, pending = len(growth.tree), []
        finally:
            # The next call most probably continues the likeliest path.
            sequence.close(growth.likeliest_scored)

    def _fit(self, shape: DraftShape, tree: TokenTree, prefix_length: int) -> DraftShape:
        """Limit ``shape`` to the context: a draft that cannot be verified is not made."""
        limit = self._model.description.context_tokens
        if not limit:
            return shape
        # The whole tree goes through a forward pass, including below nodes not drafted from.
        reached = prefix_length + max(tree.depths)
        if reached > limit:
            raise InvalidField("prefix", f"{reached} tokens exceed the context of {limit} tokens")
        room = limit - prefix_length - max(tree.depth(node) for node in shape.from_nodes)
        return replace(shape, depth=min(shape.depth, room))


def read_shape(request: drafter_pb2.DraftRequest, tree_size: int) -> DraftShape:
    """Return the shape of the draft that a request wants. Raises ``InvalidField``."""
    if not 1 <= request.depth <= MAX_DEPTH:
        raise InvalidField("depth", f"must be in [1, {MAX_DEPTH}]")
    if len(request.from_nodes) > MAX_TREE_NODES:
        raise InvalidField("from_nodes", f"holds more than {MAX_TREE_NODES}")
    from_nodes = tuple(request.from_nodes) or (0,)
    if max(from_nodes) > tree_size:
        raise InvalidField("from_nodes", f"names node {max(from_nodes)} of {tree_size}")
    if len(set(from_nodes)) != len(from_nodes):
        raise InvalidField("from_nodes", "names a node twice")
    if request.num_choices > MAX_CHOICES:
        raise InvalidField("num_choices", f"must be in [0, {MAX_CHOICES}]")
    shape = DraftShape(
        from_nodes,
        request.depth,
        request.num_choices,
        read_stop(request.stop) if request.HasField("stop") else None,
        vocab_size=request.vocab_size or None,
        growth=_read_growth(request, tree_size),
        fixed=_read_fixed(request, len(from_nodes), tree_size),
    )
    if tree_size + shape.num_nodes > MAX_TREE_NODES:
        raise InvalidField("depth", f"makes a tree of more than {MAX_TREE_NODES} nodes")
    return shape


def _read_growth(request: drafter_pb2.DraftRequest, tree_size: int) -> TreeGrowth | None:
    if not request.HasField("growth"):
        return None
    if not request.HasField("stop"):
        raise InvalidField("growth", "needs stop, whose calibration gives the value of nodes")
    return read_growth(request.growth, MAX_TREE_NODES - tree_size)


def _read_fixed(
    request: drafter_pb2.DraftRequest, num_from: int, tree_size: int
) -> TreeShape | None:
    if not request.HasField("shape"):
        return None
    if request.HasField("growth"):
        raise InvalidField("shape", "excludes growth")
    return read_tree_shape(request.shape, (MAX_TREE_NODES - tree_size) // num_from)

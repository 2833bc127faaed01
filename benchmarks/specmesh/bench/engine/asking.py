"""The engine, used as by the verifier's servicer but without gRPC."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from specmesh.bench.engine.plan import EnginePlan
from specmesh.decoding.acceptance import verify
from specmesh.decoding.own_tokens import OwnTokens
from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.engine.engine import Engine
from specmesh.inference.engine.job import Job, Steps
from specmesh.inference.model import ForwardRequest, LanguageModel, ModelNotLoadable

GREEDY = Sampling(mode=AcceptanceMode.GREEDY)
_MAX_QUEUE = 1024


class NextToken(NamedTuple):
    """The target's token, and the number of prefix tokens that were cached."""

    token_id: int
    num_cached_tokens: int


@contextmanager
def serving(plan: EnginePlan) -> Iterator[Engine]:
    """Run an engine with an empty cache, whose ``ready`` raises ``ModelNotLoadable``."""
    engine = Engine(partial(_load, plan), _MAX_QUEUE)
    try:
        yield engine
    finally:
        engine.stop()


def _load(plan: EnginePlan) -> LanguageModel:
    import torch

    from specmesh.inference.models.transformers_model import TransformersModel

    torch.set_num_threads(
        plan.threads
    )  # This applies to the calling thread, which is the engine's.
    model = TransformersModel.load(plan.model, dtype=plan.dtype, device=plan.device)
    limit = model.description.context_tokens
    if limit < plan.num_context_tokens:
        raise ModelNotLoadable(
            f"{plan.model!r} has a context of {limit} tokens; "
            f"this benchmark requires {plan.num_context_tokens}"
        )
    return model


async def next_token(
    engine: Engine, model: LanguageModel, prefix: Sequence[int], sampling: Sampling = GREEDY
) -> NextToken:
    """Return the target's next token, by verifying an empty tree."""

    own = OwnTokens.of(sampling, len(prefix))

    def work(job: Job[NextToken]) -> Steps[NextToken]:
        sequence = model.open(prefix, job.cancellation, len(EMPTY))
        try:
            logits = yield ForwardRequest(sequence, EMPTY, own)
        finally:
            sequence.close(())
        verdict = verify(EMPTY, logits, sampling, len(prefix), own=own)
        yield NextToken(verdict.next_token, sequence.num_cached_tokens)

    return await engine.run(work)


async def forward_ms(
    engine: Engine, model: LanguageModel, prefix: Sequence[int], tree: TokenTree
) -> float:
    """Return the time of the forward that scores ``tree``; nothing of the tree stays cached."""

    def work(job: Job[float]) -> Steps[float]:
        began = time.perf_counter()
        sequence = model.open(prefix, job.cancellation, len(tree))
        try:
            yield ForwardRequest(sequence, tree)
            yield (time.perf_counter() - began) * 1e3
        finally:
            sequence.close(())

    return await engine.run(work)

"""One verification as a job of the engine, and the tokens that the target decodes after it."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from specmesh.decoding.acceptance import NO_DISTRIBUTIONS, Verdict, verify
from specmesh.decoding.logprobs import logprobs_along, logprobs_of_nodes
from specmesh.decoding.own_tokens import OwnTokens
from specmesh.decoding.processing.processor import LogitProcessor
from specmesh.decoding.sampling import Distribution, Sampling
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.engine.blocks.pool import NoRoom, TooLarge
from specmesh.inference.engine.blocks.rereads import RereadLater
from specmesh.inference.engine.heads.target_with_heads import TargetWithHeads
from specmesh.inference.engine.job import Job, NoPlace, Steps
from specmesh.inference.model import ForwardRequest, LanguageModel, Logits, SequenceState
from specmesh.mesh.v1alpha1 import cost_pb2, verifier_pb2
from specmesh.serving.codec.verdicts import write_verdict
from specmesh.verifier.next_draft import RequestedDraft, draft_below
from specmesh.verifier.path_logits import NotComputed, PathLogits
from specmesh.verifier.worthwhile_calls import WorthwhileCalls

VerifyJob = Job[verifier_pb2.VerifyResponse]
VerifySteps = Steps[verifier_pb2.VerifyResponse]
_MoreSteps = Generator[ForwardRequest | verifier_pb2.VerifyResponse, Logits, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The verification of ``tree`` behind ``prefix``, and up to ``num_further`` further tokens
    behind an empty one. The other fields are as in ``VerifyRequest``. The logits go through
    ``processor``."""

    model: LanguageModel
    worthwhile_calls: WorthwhileCalls
    prefix: Sequence[int]
    tree: TokenTree
    sampling: Sampling
    processor: LogitProcessor
    grammar_ms: float = 0.0
    """The time that the grammar's mask took, part of the cost."""
    distributions: Mapping[int, Distribution] = field(default_factory=lambda: NO_DISTRIBUTIONS)
    num_bonus_candidates: int = 0
    num_top_logprobs: int | None = None
    num_node_logprobs: int | None = None
    next_draft: RequestedDraft | None = None
    num_further: int = 0
    collect_s: float = 0.0
    """The time for which a further token may wait for those after it."""

    def steps(self, job: VerifyJob) -> VerifySteps:
        """Yield the responses of the verification, and the forward passes that it needs."""
        try:
            yield from self._all_at_once(job)
        except FloatingPointError as error:
            # A draft token after which the model overflows spoils the logits before it as well,
            # since attention multiplies what it masks by 0. The verdict may need none of it.
            if not len(self.tree) or self.num_node_logprobs is not None:
                raise
            yield from self._node_by_node(job, error)

    def _node_by_node(self, job: VerifyJob, error: FloatingPointError) -> VerifySteps:
        """Verify with forward passes of one accepted node each; raise ``error`` if there is no room
        for them."""
        began, total_ms = time.perf_counter(), 0.0
        try:
            sequence = job.open(self.model, self.prefix, len(self.tree))
        except (NoPlace, NoRoom, RereadLater):
            raise error from None
        logits, kept = PathLogits(self.tree, self.model.description.vocab_size), range(0)
        try:
            while isinstance(verdict := self._judged(logits), NotComputed):
                path = self.tree.path(verdict.node)
                (row,) = yield ForwardRequest(sequence, TokenTree.chain(self.tree.tokens_on(path)))
                logits.add(verdict.node, row)
                forward_ms = (time.perf_counter() - began) * 1e3
                began, total_ms = time.perf_counter(), total_ms + forward_ms
            kept = range(1, len(verdict.accepted_nodes) + 1)
            cost = self._cost_of_call(job, sequence, forward_ms)
            cost.forward_ms = total_ms
        finally:
            sequence.close(kept)
        yield write_verdict(verdict, cost)

    def _judged(self, logits: PathLogits) -> Verdict | NotComputed:
        try:
            return self._judge(cast("Logits", logits), None)
        except NotComputed as missing:
            return missing

    def _all_at_once(self, job: VerifyJob) -> VerifySteps:
        began = time.perf_counter()
        own = OwnTokens.of(self.sampling, len(self.prefix))
        sequence, num_further = self._open(job)
        kept: list[int] = []
        try:
            logits = yield ForwardRequest(sequence, self.tree, own)
            forward_ms = (time.perf_counter() - began) * 1e3
            verdict = self._judge(logits, own)
            del logits  # they keep those of all calls of that forward
            kept += verdict.accepted_nodes
            response = write_verdict(verdict, self._cost_of_call(job, sequence, forward_ms))
            response.number = 1 if self.num_further else 0  # also where there is room for none
            if num_further:
                yield from self._decode_on(job, sequence, own, response, num_further, kept)
        finally:
            sequence.close(kept)  # before heads draft: other calls may need its KV cache
        if num_further:
            return
        if self.next_draft is not None and isinstance(self.model, TargetWithHeads):
            path = (*self.tree.tokens_on(kept), verdict.next_token)
            below = kept[-1] if kept else 0, self.processor, path, self.next_draft
            drafted = yield from draft_below(self.model, sequence, *below)
            if drafted is not None:
                response.next_draft.CopyFrom(drafted)
        yield response

    def _open(self, job: VerifyJob) -> tuple[SequenceState, int]:
        """Return the sequence, and how many further tokens there is room for: none where memory is
        short, so that they never cost a call its place."""
        num_further = self.num_further
        if limit := self.model.description.context_tokens:
            num_further = min(num_further, limit - len(self.prefix))
        if num_further > 0:
            try:
                return job.open(self.model, self.prefix, num_further), num_further
            except (NoRoom, TooLarge, RereadLater):
                pass
        room = len(self.tree)
        if self.next_draft is not None and isinstance(self.model, TargetWithHeads):
            nodes = self.next_draft.shape.num_nodes
            room = self.model.room(len(self.prefix), self.tree, nodes)
        return job.open(self.model, self.prefix, room), 0

    def _decode_on(
        self,
        job: VerifyJob,
        sequence: SequenceState,
        own: OwnTokens | None,
        response: verifier_pb2.VerifyResponse,
        num_further: int,
        kept: list[int],
    ) -> _MoreSteps:
        """Yield ``response``, which is the first, and others with up to ``num_further`` tokens. All
        tokens form a chain; ``kept`` gets the nodes that have been through a forward pass."""
        tokens, number = [response.next_token_id], 1
        response.has_more = not self._ends(job, tokens, num_further)
        while True:
            response.number = number
            yield response
            if not response.has_more:
                return
            response = yield from self._collect(job, sequence, own, tokens, num_further, kept)
            number += 1

    def _collect(
        self,
        job: VerifyJob,
        sequence: SequenceState,
        own: OwnTokens | None,
        tokens: list[int],
        num_further: int,
        kept: list[int],
    ) -> Generator[ForwardRequest, Logits, verifier_pb2.VerifyResponse]:
        """Append to ``tokens`` what the target decodes in ``collect_s``, at least one token, and
        return the response with it."""
        num_before, began = len(tokens), time.perf_counter()
        due, total_ms = began + self.collect_s, 0.0
        while True:
            logits = yield ForwardRequest(sequence, TokenTree.chain(tokens), own)
            forward_ms = (time.perf_counter() - began) * 1e3
            total_ms += forward_ms
            kept.append(len(tokens))
            verdict = self._judge_next(logits, own, tokens)
            del logits
            tokens.append(verdict.next_token)
            cost = self._cost(sequence, forward_ms)  # which learns from each
            has_more = not self._ends(job, tokens, num_further)
            began = time.perf_counter()
            if began >= due or not has_more:
                break
        first, *others = tokens[num_before:]
        cost.num_computed_tokens = 1 + len(others)
        cost.forward_ms = total_ms / cost.num_computed_tokens
        response = write_verdict(replace(verdict, next_token=first), cost)
        response.collected_token_ids.extend(others)
        response.has_more = has_more
        return response

    def _ends(self, job: VerifyJob, tokens: Sequence[int], num_further: int) -> bool:
        """Return whether the call ends with ``tokens``, the first of which was not further."""
        if len(tokens) > num_further or job.others_wait:
            return True
        return tokens[-1] in self.model.description.end_of_text_ids

    def _judge(self, logits: Logits, own: OwnTokens | None) -> Verdict:
        """Return the verdict that ``logits`` ``[len(tree) + 1, vocab]`` lead to."""
        rows = self.processor.rows(logits, self.tree)
        verdict = verify(
            *(self.tree, rows, self.sampling, len(self.prefix)),
            *(self.distributions, self.num_bonus_candidates, own),
        )
        verdict = self._with_logprobs(verdict, self.tree, logits)
        if self.num_node_logprobs is None:
            return verdict
        found = logprobs_of_nodes(self.tree, logits, self.num_node_logprobs)
        return replace(verdict, node_logprobs=found)

    def _judge_next(self, logits: Logits, own: OwnTokens | None, tokens: Sequence[int]) -> Verdict:
        """Return the verdict on an empty tree behind the prefix and ``tokens``, a chain after whose
        last one ``logits`` ``[1, vocab]`` are."""
        depth = len(tokens)
        rows = self.processor.rows(logits, EMPTY, tokens)
        verdict = verify(
            *(EMPTY, rows, self.sampling, len(self.prefix) + depth),
            own=None if own is None else own.below(depth, depth),
        )
        return self._with_logprobs(verdict, EMPTY, logits)

    def _with_logprobs(self, verdict: Verdict, tree: TokenTree, logits: Logits) -> Verdict:
        if self.num_top_logprobs is None:
            return verdict
        path = verdict.accepted_nodes, verdict.next_token
        return replace(verdict, logprobs=logprobs_along(tree, logits, *path, self.num_top_logprobs))

    def _cost_of_call(
        self, job: VerifyJob, sequence: SequenceState, forward_ms: float
    ) -> cost_pb2.ComputeCost:
        """Return the cost of ``job``, the latest forward pass of which took that time."""
        cost = self._cost(sequence, forward_ms)
        cost.queue_ms = job.queue_ms
        cost.num_cached_tokens = sequence.num_cached_tokens
        cost.num_computed_tokens = sequence.num_computed_tokens
        cost.grammar_ms = self.grammar_ms
        return cost

    def _cost(self, sequence: SequenceState, forward_ms: float) -> cost_pb2.ComputeCost:
        """Return the cost of the latest forward pass of ``sequence``, which took that time."""
        forward = sequence.latest_forward
        return cost_pb2.ComputeCost(
            forward_ms=forward_ms,
            num_batch_calls=forward.num_calls,
            num_batch_tokens=forward.num_rows,
            num_worthwhile_calls=self.worthwhile_calls.learn(forward, forward_ms),
            computed_at_s=time.monotonic(),
        )

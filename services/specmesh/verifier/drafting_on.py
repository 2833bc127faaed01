"""Verifications whose verdicts bring the next draft of the target's heads, one after the other.

The replica need not wait for the request of the next one: it verifies its own draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

from specmesh.decoding.acceptance import NO_DISTRIBUTIONS
from specmesh.decoding.prefix import PrefixChain
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.decoding.winners import OwnTokens
from specmesh.inference.engine.blocks.pool import NoRoom, TooLarge
from specmesh.inference.engine.heads.target_with_heads import TargetWithHeads
from specmesh.inference.model import ForwardRequest, SequenceState
from specmesh.mesh.v1alpha1 import drafter_pb2
from specmesh.serving.codec.verdicts import write_verdict
from specmesh.serving.codec.wire import read_distributions
from specmesh.verifier.next_draft import RequestedDraft, draft_below
from specmesh.verifier.verification import (
    Verification,
    VerifyJob,
    VerifySteps,
    first_cost,
    further_cost,
)


class DraftingOn:
    """The verification ``first``, and up to as many further ones as it asks for, each of the draft
    that came with the verdict before it, ``asked`` for of the heads of ``model``."""

    def __init__(self, first: Verification, model: TargetWithHeads, asked: RequestedDraft) -> None:
        self._current = first
        self._model = model
        self._asked = asked
        self._number = 0
        """The number of verifications before the current one."""

    def steps(self, job: VerifyJob) -> VerifySteps:
        """Yield the responses of all verifications, and the forward passes that they need."""
        sequence: SequenceState | None = self._open(job)
        while sequence is not None:
            current, accepted = self._current, tuple[int, ...]()
            began = perf_counter()
            try:
                own = OwnTokens.of(current.sampling, len(current.prefix))
                logits = yield ForwardRequest(sequence, current.tree, own)
                forward_ms = (perf_counter() - began) * 1e3
                verdict = current.judge(logits, own)
                accepted = verdict.accepted_nodes
                cost = (
                    further_cost(sequence, forward_ms, len(current.tree) + 1)
                    if self._number
                    else first_cost(job, sequence, forward_ms)
                )
                response = write_verdict(verdict, cost)
            finally:
                sequence.close(accepted)  # before heads draft: other calls may need its KV cache
            path = (*current.tree.tokens_on(accepted), verdict.next_token)
            said = (*current.said, *path)
            drafted = yield from draft_below(
                *(self._model, sequence, accepted[-1] if accepted else 0),
                *(current.processor, said, self._asked.numbered(self._number)),
            )
            if drafted is not None:
                response.next_draft.CopyFrom(drafted)
            sequence = self._opened_next(job, path, drafted) if self._goes_on(job, path) else None
            response.has_more = sequence is not None
            try:
                yield response
            except GeneratorExit:  # the call was cancelled
                if sequence is not None:
                    sequence.close(())
                raise

    def _goes_on(self, job: VerifyJob, path: Sequence[int]) -> bool:
        """Return whether another verification may follow a verdict with the tokens ``path``."""
        current, description = self._current, self._model.description
        if self._number == current.num_further or not description.scores_trees:
            return False
        limit = description.context_tokens
        fits = not limit or len(current.prefix) + len(path) <= limit
        return fits and current.may_go_on(job, path)

    def _opened_next(
        self, job: VerifyJob, path: Sequence[int], drafted: drafter_pb2.DraftResponse | None
    ) -> SequenceState | None:
        """Return the sequence of the next verification, that of the tree ``drafted`` behind the
        ``path`` of the current one; None where memory is short."""
        current = self._current
        prefix = PrefixChain(current.prefix)
        prefix.append(path)
        tree, distributions = EMPTY, NO_DISTRIBUTIONS
        if drafted is not None:
            tree = TokenTree(tuple(drafted.token_ids), tuple(drafted.parents))
            distributions = read_distributions(drafted.draft_distributions)
        self._current = replace(
            current,
            prefix=prefix,
            tree=tree,
            distributions=distributions,
            said=(*current.said, *path),
        )
        self._number += 1
        try:
            return self._open(job)
        except (NoRoom, TooLarge):
            return None

    def _open(self, job: VerifyJob) -> SequenceState:
        current, num_nodes = self._current, self._asked.shape.num_nodes
        room = self._model.room(len(current.prefix), current.tree, num_nodes)
        return self._model.open(current.prefix, job.cancellation, room)

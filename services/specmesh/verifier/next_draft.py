"""What the target's heads draft below a verdict."""

from __future__ import annotations

import logging
from collections.abc import Generator
from dataclasses import dataclass, replace

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.tree import EMPTY
from specmesh.inference.engine.heads import DraftSequence
from specmesh.inference.model import ForwardRequest, Logits, ModelDescription
from specmesh.inference.service.accounts import CostMeter
from specmesh.inference.service.growth import MAX_CHOICES, MAX_DEPTH, DraftShape, GrowingDraft
from specmesh.inference.service.levels import write_levels
from specmesh.mesh.v1alpha1 import drafter_pb2, verifier_pb2
from specmesh.serving.codec.wire import MAX_TREE_NODES, read_growth, read_stop

log = logging.getLogger(__name__)

FIELD = "next_draft"

DraftingSteps = Generator[ForwardRequest, Logits, drafter_pb2.DraftResponse | None]


@dataclass(frozen=True, slots=True)
class RequestedDraft:
    """A draft that a request asks for, and what it is drawn with."""

    shape: DraftShape
    sampling: Sampling


def read_next_draft(
    request: verifier_pb2.VerifyRequest, sampling: Sampling
) -> RequestedDraft | None:
    """The draft that ``request`` asks for, None for none; raises ``InvalidField``."""
    if not request.HasField("next_draft"):
        return None
    message = request.next_draft
    if not 1 <= message.depth <= MAX_DEPTH:
        raise InvalidField(f"{FIELD}.depth", f"must be in [1, {MAX_DEPTH}]")
    if message.num_choices > MAX_CHOICES:
        raise InvalidField(f"{FIELD}.num_choices", f"must be in [0, {MAX_CHOICES}]")
    if message.HasField("growth") and not message.HasField("stop"):
        reason = "needs stop, by whose calibration nodes are valued"
        raise InvalidField(f"{FIELD}.growth", reason)
    try:
        growth = read_growth(message.growth, MAX_TREE_NODES) if message.HasField("growth") else None
        stop = read_stop(message.stop) if message.HasField("stop") else None
    except InvalidField as error:
        raise InvalidField(f"{FIELD}.{error.field}", error.reason) from None
    shape = DraftShape((0,), message.depth, (), message.num_choices, stop, growth=growth)
    if message.HasField("seed"):
        sampling = replace(sampling, seed=message.seed)
    return RequestedDraft(shape, sampling)


def draft_from(
    draft: DraftSequence, position: int, asked: RequestedDraft, description: ModelDescription
) -> DraftingSteps:
    """What ``asked`` for, from ``draft`` on, whose next token is at ``position``. None if the heads
    fail: the verdict counts all the same."""
    try:
        return (yield from _grow(draft, position, _fit(asked, description, position)))
    except Exception:
        log.exception("heads failed")
        return None


def _grow(
    draft: DraftSequence, position: int, asked: RequestedDraft
) -> Generator[ForwardRequest, Logits, drafter_pb2.DraftResponse]:
    meter = CostMeter(draft)
    growth = GrowingDraft(EMPTY, position, asked.shape, asked.sampling)
    levels = []
    try:
        while not growth.ended:
            levels.append(growth.grow((yield ForwardRequest(draft, growth.tree))))
        cost = meter.read()
    finally:
        draft.close(())
    return write_levels(levels, 0, cost) if levels else drafter_pb2.DraftResponse()


def _fit(asked: RequestedDraft, description: ModelDescription, position: int) -> RequestedDraft:
    """``asked`` cut to what the heads can, and to the context: what can't be verified is not
    drafted."""
    depth = min(asked.shape.depth, description.heads_depth)
    if limit := description.context_tokens:
        depth = min(depth, max(0, limit - position))
    return replace(asked, shape=replace(asked.shape, depth=depth))

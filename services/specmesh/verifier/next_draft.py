"""What the target's heads draft below a verdict."""

from __future__ import annotations

import logging
from collections.abc import Generator
from dataclasses import dataclass, replace

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.tree import EMPTY
from specmesh.inference.engine.heads import TargetWithHeads
from specmesh.inference.model import ForwardRequest, Logits, SequenceState
from specmesh.inference.service.accounts import CostMeter
from specmesh.inference.service.growth import MAX_CHOICES, MAX_DEPTH, DraftShape, GrowingDraft
from specmesh.inference.service.levels import write_levels
from specmesh.mesh.v1alpha1 import drafter_pb2, verifier_pb2
from specmesh.serving.wire import MAX_TREE_NODES, read_growth, read_stop

log = logging.getLogger(__name__)

FIELD = "next_draft"

DraftingSteps = Generator[ForwardRequest, Logits, drafter_pb2.DraftResponse | None]


@dataclass(frozen=True, slots=True)
class NextDraft:
    """A draft that a request asks for, and what it is drawn with."""

    shape: DraftShape
    sampling: Sampling


def read_next_draft(request: verifier_pb2.VerifyRequest, sampling: Sampling) -> NextDraft | None:
    """The draft that ``request`` asks for, None for none; raises ``InvalidField``."""
    if not request.HasField(FIELD):
        return None
    message = request.next_draft
    if not 1 <= message.depth <= MAX_DEPTH:
        raise InvalidField(f"{FIELD}.depth", f"must be in [1, {MAX_DEPTH}]")
    if message.num_choices > MAX_CHOICES:
        raise InvalidField(f"{FIELD}.num_choices", f"must be in [0, {MAX_CHOICES}]")
    for name in ("growth", "stop"):
        if not message.HasField(name):
            raise InvalidField(f"{FIELD}.{name}", "must be set")
    try:
        growth, stop = read_growth(message.growth, MAX_TREE_NODES), read_stop(message.stop)
    except InvalidField as error:
        raise InvalidField(f"{FIELD}.{error.field}", error.reason) from None
    shape = DraftShape((0,), message.depth, (), message.num_choices, stop, growth=growth)
    if message.HasField("seed"):
        sampling = replace(sampling, seed=message.seed)
    return NextDraft(shape, sampling)


def draft_below(
    model: TargetWithHeads,
    sequence: SequenceState,
    node: int,
    token_id: int,
    position: int,
    asked: NextDraft,
) -> DraftingSteps:
    """Draft below ``token_id``, which the target has chosen after ``node`` of its ``sequence`` and
    before ``position``. None if heads fail: the verdict counts all the same."""
    try:
        return (yield from _grow(model, sequence, node, token_id, position, asked))
    except Exception:
        log.exception("heads failed")
        return None


def _grow(
    model: TargetWithHeads,
    sequence: SequenceState,
    node: int,
    token_id: int,
    position: int,
    asked: NextDraft,
) -> Generator[ForwardRequest, Logits, drafter_pb2.DraftResponse]:
    draft = model.open_draft(sequence, node, token_id)
    meter = CostMeter(draft)
    growth = GrowingDraft(EMPTY, position, _fit(asked.shape, model, position), asked.sampling)
    levels = []
    try:
        while not growth.ended:
            levels.append(growth.grow((yield ForwardRequest(draft, growth.tree))))
        cost = meter.read()
    finally:
        draft.close(())
    return write_levels(levels, 0, cost) if levels else drafter_pb2.DraftResponse()


def _fit(shape: DraftShape, model: TargetWithHeads, position: int) -> DraftShape:
    """``shape`` cut to what the heads can, and to the context: what can't be verified is not
    drafted."""
    depth = min(shape.depth, model.description.heads_depth)
    if limit := model.description.context_tokens:
        depth = min(depth, max(0, limit - position))
    return replace(shape, depth=depth)

"""The draft of the target's heads below a verdict."""

from __future__ import annotations

import logging
from collections.abc import Generator
from dataclasses import dataclass, replace

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.processing.processor import LogitProcessor
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.tree import EMPTY
from specmesh.inference.engine.blocks.pool import NoRoom, TooLarge
from specmesh.inference.engine.heads.draft_sequence import DraftSequence
from specmesh.inference.engine.heads.target_with_heads import TargetWithHeads
from specmesh.inference.model import ForwardRequest, Logits, ModelDescription, SequenceState
from specmesh.inference.service.accounts import CostMeter
from specmesh.inference.service.growth import MAX_CHOICES, MAX_DEPTH, DraftShape, GrowingDraft
from specmesh.inference.service.levels import write_levels
from specmesh.mesh.v1alpha1 import drafter_pb2, verifier_pb2
from specmesh.serving.codec.draft_rules import read_growth, read_stop
from specmesh.serving.codec.wire import MAX_TREE_NODES

log = logging.getLogger(__name__)

FIELD = "next_draft"

DraftingSteps = Generator[ForwardRequest, Logits, drafter_pb2.DraftResponse | None]


@dataclass(frozen=True, slots=True)
class RequestedDraft:
    """The draft that a request asks for, and its sampling."""

    shape: DraftShape
    sampling: Sampling


def read_next_draft(
    request: verifier_pb2.VerifyRequest, sampling: Sampling
) -> RequestedDraft | None:
    """Return the draft that ``request`` asks for; None if it asks for none. Raises
    ``InvalidField``."""
    if not request.HasField("next_draft"):
        return None
    message = request.next_draft
    if not 1 <= message.depth <= MAX_DEPTH:
        raise InvalidField(f"{FIELD}.depth", f"must be in [1, {MAX_DEPTH}]")
    if message.num_choices > MAX_CHOICES:
        raise InvalidField(f"{FIELD}.num_choices", f"must be in [0, {MAX_CHOICES}]")
    if message.HasField("growth") and not message.HasField("stop"):
        reason = "needs stop, whose calibration gives the value of nodes"
        raise InvalidField(f"{FIELD}.growth", reason)
    try:
        growth = read_growth(message.growth, MAX_TREE_NODES) if message.HasField("growth") else None
        stop = read_stop(message.stop) if message.HasField("stop") else None
    except InvalidField as error:
        raise InvalidField(f"{FIELD}.{error.field}", error.reason) from None
    shape = DraftShape((0,), message.depth, message.num_choices, stop, growth=growth)
    if message.HasField("seed"):
        sampling = replace(sampling, seed=message.seed)
    return RequestedDraft(shape, sampling)


def draft_below(
    model: TargetWithHeads,
    sequence: SequenceState,
    node: int,
    processor: LogitProcessor,
    path: tuple[int, ...],
    asked: RequestedDraft,
) -> DraftingSteps:
    """Draft as ``asked`` behind the prefix of ``processor`` and then ``path``, the tokens of a
    verdict that accepted the path to ``node`` of ``sequence``, which is closed.

    Returns None if there is no room for what the heads keep, or if they fail: the verdict is still
    valid.
    """
    fitting = _fit(asked, model.description, processor.prefix_length + len(path))
    try:
        draft = model.open_draft(sequence, node, path[-1], fitting.shape.num_nodes)
        try:
            return (yield from _grow(draft, processor, path, fitting))
        finally:
            draft.close(())
    except (NoRoom, TooLarge):
        return None
    except Exception:
        log.exception("the heads failed to draft")
        return None


def _grow(
    draft: DraftSequence, processor: LogitProcessor, path: tuple[int, ...], asked: RequestedDraft
) -> Generator[ForwardRequest, Logits, drafter_pb2.DraftResponse]:
    meter = CostMeter(draft)
    growth = GrowingDraft(EMPTY, asked.shape, asked.sampling, processor, path)
    levels = []
    while not growth.ended:
        levels.append(growth.grow((yield ForwardRequest(draft, growth.tree))))
    return write_levels(levels, 0, meter.read()) if levels else drafter_pb2.DraftResponse()


def _fit(asked: RequestedDraft, description: ModelDescription, position: int) -> RequestedDraft:
    """Limit ``asked`` to the heads' depth and to the context: tokens that can't be verified are not
    drafted."""
    depth = min(asked.shape.depth, description.heads_depth)
    if limit := description.context_tokens:
        depth = min(depth, max(0, limit - position))
    return replace(asked, shape=replace(asked.shape, depth=depth))

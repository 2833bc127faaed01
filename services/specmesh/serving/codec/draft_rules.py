"""Conversion between messages and the rules by which a draft grows and ends.

Reading validates: a wrong field raises ``InvalidField`` with the field's path in the request.
"""

from __future__ import annotations

from specmesh.decoding.errors import InvalidField, within
from specmesh.decoding.predict.lookahead import DraftStop
from specmesh.decoding.predict.platt import MAX_BIAS, MAX_SLOPE, Platt
from specmesh.decoding.trees.growth import TreeGrowth
from specmesh.decoding.trees.shape import TreeShape
from specmesh.mesh.v1alpha1 import drafter_pb2


def read_stop(message: drafter_pb2.DraftStop) -> DraftStop:
    """Return the rule for ending a draft early."""
    for name, least, most in (
        ("below", 0.0, 1.0),
        ("slope", 0.0, MAX_SLOPE),
        ("bias", -MAX_BIAS, MAX_BIAS),
    ):
        # Written so that a NaN is refused as well.
        if not least <= getattr(message, name) <= most:
            raise InvalidField(f"stop.{name}", f"must be in [{least:g}, {most:g}]")
    return DraftStop(message.below, Platt(message.slope, message.bias))


def write_stop(stop: DraftStop | None) -> drafter_pb2.DraftStop | None:
    """Return the message for ``stop``."""
    if stop is None:
        return None
    return drafter_pb2.DraftStop(
        below=stop.below, slope=stop.acceptance.slope, bias=stop.acceptance.bias
    )


def read_growth(message: drafter_pb2.TreeGrowth, most: int) -> TreeGrowth:
    """Return the rule for growing a tree by worth, to at most ``most`` nodes."""
    if not 1 <= message.max_nodes <= most:
        raise InvalidField("growth.max_nodes", f"must be in [1, {most}]")
    # Written so that a NaN is refused as well.
    if not 0 <= message.least_worth <= 1:
        raise InvalidField("growth.least_worth", "must be in [0, 1]")
    return TreeGrowth(message.max_nodes, message.least_worth)


def write_growth(growth: TreeGrowth | None) -> drafter_pb2.TreeGrowth | None:
    """Return the message for ``growth``."""
    if growth is None:
        return None
    return drafter_pb2.TreeGrowth(max_nodes=growth.max_nodes, least_worth=growth.least_worth)


def read_tree_shape(message: drafter_pb2.TreeShape, most: int) -> TreeShape:
    """Return a tree's shape. Raises ``InvalidField`` for more than ``most`` nodes."""
    if sum(message.num_children) > most:
        raise InvalidField("shape.num_children", f"must make a tree of at most {most} nodes")
    with within("shape"):
        return TreeShape(tuple(message.num_children))


def write_tree_shape(shape: TreeShape | None) -> drafter_pb2.TreeShape | None:
    """Return the message for ``shape``."""
    return None if shape is None else drafter_pb2.TreeShape(num_children=shape.num_children)

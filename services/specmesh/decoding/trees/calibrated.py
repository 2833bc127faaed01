"""The best trees for a pair of models, as ``specmesh calibrate tree`` writes them to a file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from specmesh.decoding.errors import InvalidField, within
from specmesh.decoding.trees.shape import TreeShape

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class CalibratedTree:
    """The best shape of its size: with it a verification yielded ``acceptance_length`` tokens of
    the calibration text on average, the target's own included."""

    shape: TreeShape
    acceptance_length: float


@dataclass(frozen=True, slots=True)
class CalibratedTrees:
    """The best trees of 1 node, of 2 and so on, by the temperature at which they were measured.

    They hold for the models with these digests (``ModelDescription.weights_digest``). For other
    models they may cost time, but change no text.
    """

    target_digest: str
    drafter_digest: str
    by_temperature: Mapping[float, Sequence[CalibratedTree]]

    def nearest(self, temperature: float) -> Sequence[CalibratedTree]:
        """Return the trees for the temperature that is nearest to ``temperature``."""
        return self.by_temperature[min(self.by_temperature, key=lambda t: abs(t - temperature))]

    def to_json(self) -> str:
        """Return the trees as text for a file, with a line for each tree."""
        settings = ",\n".join(
            f'  {{"temperature": {json.dumps(temperature)}, "trees": [\n'
            + ",\n".join(f"    {_tree_to_json(each)}" for each in trees)
            + "\n  ]}"
            for temperature, trees in self.by_temperature.items()
        )
        return (
            f'{{\n"version": {VERSION},\n'
            f'"target_digest": {json.dumps(self.target_digest)},\n'
            f'"drafter_digest": {json.dumps(self.drafter_digest)},\n'
            f'"settings": [\n{settings}\n]\n}}'
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the trees that ``to_json`` wrote. Raises ``InvalidField`` for any other text."""
        try:
            read = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise InvalidField("file", f"is not JSON: {error}") from None
        version = _member(read, "version", object)
        if version != VERSION:
            raise InvalidField("version", f"{version!r} is not known, only {VERSION}")
        by_temperature = {}
        for number, setting in enumerate(_member(read, "settings", list)):
            with within(f"settings[{number}]"):
                temperature = _number(setting, "temperature")
                by_temperature[temperature] = _trees(_member(setting, "trees", list))
        if not by_temperature:
            raise InvalidField("settings", "is empty")
        return cls(
            _member(read, "target_digest", str),
            _member(read, "drafter_digest", str),
            by_temperature,
        )


def _tree_to_json(tree: CalibratedTree) -> str:
    return json.dumps(
        {"num_children": tree.shape.num_children, "acceptance_length": tree.acceptance_length}
    )


def _trees(read: Sequence[object]) -> tuple[CalibratedTree, ...]:
    if not read:
        raise InvalidField("trees", "is empty")
    trees = []
    for number, tree in enumerate(read):
        with within(f"trees[{number}]"):
            counts = _member(tree, "num_children", list)
            if any(type(count) is not int for count in counts):
                raise InvalidField("num_children", "must have whole numbers")
            shape = TreeShape(tuple(counts))
            if shape.num_nodes != number + 1:
                reason = f"makes a tree of {shape.num_nodes} nodes, not {number + 1}"
                raise InvalidField("num_children", reason)
            trees.append(CalibratedTree(shape, _number(tree, "acceptance_length")))
    return tuple(trees)


def _member(read: object, name: str, kind: type[Any]) -> Any:
    """Return ``read[name]``, which must be of ``kind``."""
    if not isinstance(read, dict) or name not in read:
        raise InvalidField(name, "is missing")
    if not isinstance(read[name], kind):
        raise InvalidField(name, f"must be a {kind.__name__}")
    return read[name]


def _number(read: object, name: str) -> float:
    value = _member(read, name, object)
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise InvalidField(name, "must be a number, and not negative")
    return float(value)

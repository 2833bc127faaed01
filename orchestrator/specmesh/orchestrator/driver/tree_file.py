"""The file of calibrated trees that an orchestrator is given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.trees.calibrated import CalibratedTrees
from specmesh.orchestrator.replicas.transport.peer import Peer
from specmesh.serving.startup import CannotStart


def read_trees(file: Path | None) -> CalibratedTrees | None:
    """The trees in ``file``, if one is named. Raises ``CannotStart`` if they can't be read."""
    if file is None:
        return None
    try:
        return CalibratedTrees.from_json(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, InvalidField) as error:
        raise CannotStart(f"--trees {file}: {error}") from error


def check_trees(
    trees: CalibratedTrees, verifiers: Sequence[Peer], drafters: Sequence[Peer]
) -> None:
    """Raise ``CannotStart`` if ``trees`` are of another target than the first of ``verifiers``
    serves, or of another drafter than the first of ``drafters``, as far as these are known yet."""
    for field, digest, peers in (
        ("target_digest", trees.target_digest, verifiers),
        ("drafter_digest", trees.drafter_digest, drafters),
    ):
        model = peers[0].model if peers else None
        if model is not None and model.info.weights_digest != digest:
            raise CannotStart(
                f"--trees: {field}: the trees are of a model with {digest!r}, "
                f"and {model.info.name!r} has {model.info.weights_digest!r}"
            )

"""The file of calibrated trees in an orchestrator's settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.trees.calibrated import CalibratedTrees
from specmesh.orchestrator.replicas.transport.peer import Peer
from specmesh.serving.startup import CannotStart


def read_trees(file: Path | None) -> CalibratedTrees | None:
    """Read the trees in ``file``, if there is one. Raises ``CannotStart`` if that fails."""
    if file is None:
        return None
    try:
        return CalibratedTrees.from_json(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, InvalidField) as error:
        raise CannotStart(f"--trees {file}: {error}") from error


def check_trees(
    trees: CalibratedTrees, verifiers: Sequence[Peer], drafters: Sequence[Peer]
) -> None:
    """Raise ``CannotStart`` if ``trees`` belong to another target than that of the first of
    ``verifiers``, or to another drafter than the first of ``drafters``, as far as known."""
    for field, digest, peers in (
        ("target_digest", trees.target_digest, verifiers),
        ("drafter_digest", trees.drafter_digest, drafters),
    ):
        model = peers[0].model if peers else None
        if model is not None and model.info.weights_digest != digest:
            raise CannotStart(
                f"--trees: {field}: the trees are of a model with {digest!r}, "
                f"but {model.info.name!r} has {model.info.weights_digest!r}"
            )

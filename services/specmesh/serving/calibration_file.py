"""The file of a calibration in a process's settings."""

from __future__ import annotations

from pathlib import Path

from specmesh.decoding.predict.calibration import Calibration
from specmesh.serving.startup import CannotStart


def read_calibration(file: Path | None) -> Calibration | None:
    """Read the calibration in ``file``, if there is one. Raises ``CannotStart`` if that fails."""
    if file is None:
        return None
    try:
        return Calibration.from_json(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CannotStart(f"--calibration {file}: {error}") from error

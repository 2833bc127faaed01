"""Finding the model pair and the prompts that come with specmesh."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

from specmesh.cli.local.process import StartError

TARGET = "pycode-12m"
DRAFTER = "pycode-0.6m"
_PROMPTS = "heldout_prompts.json"
_CALIBRATION = "confidence.json"


def shipped_model(name: str) -> str:
    """Its folder. Raises StartError if this installation has none."""
    return str(_shipped(name, "name models with --target and --drafter"))


def calibration() -> Path:
    """The file of the shipped pair. Raises StartError if this installation has none."""
    return _shipped(_CALIBRATION, "name a file with --calibration")


def read_prompts(file: Path | None) -> list[str]:
    """The prompts in ``file``, a JSON list of objects with a ``text``; None: those shipped.

    Raises StartError if it can't be read so.
    """
    path = _shipped(_PROMPTS, "name a file with --prompts") if file is None else file
    try:
        texts = [str(prompt["text"]) for prompt in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StartError(f"cannot read prompts from {path}: {error!r}") from error
    if not texts:
        raise StartError(f"no prompts in {path}")
    return texts


def _shipped(name: str, advice: str) -> Path:
    # Found, not imported: the package is on the other side, and may be missing here.
    package = find_spec("specmesh.models")
    for folder in (package.submodule_search_locations or ()) if package else ():
        path = Path(folder) / name
        if path.exists():
            return path
    raise StartError(f"{name} is not installed: {advice}")

"""The model pair that ships with specmesh, in the Hugging Face layout (see README.md)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

TARGET = "pycode-12m"
DRAFTER = "pycode-0.6m"
HEADS = "pycode-12m-heads"

_FOLDER = Path(__file__).parent

CALIBRATION = _FOLDER / "confidence.json"
"""The pair's calibration, written by ``specmesh calibrate confidence``."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The beginning of some code that neither model has seen.

    ``path`` and ``sha256`` name the standard-library file that ``text`` was cut from.
    """

    path: str
    sha256: str
    text: str


def path(name: str) -> Path:
    """Return the folder of the shipped model ``name``.

    Raises KeyError if there is no such model, and ModuleNotFoundError if the distribution
    specmesh-models, which has the weights, is not installed.
    """
    if name not in (TARGET, DRAFTER, HEADS):
        raise KeyError(name)
    folder = _FOLDER / name
    if not folder.is_dir():
        raise ModuleNotFoundError(f"no folder {folder}", name="specmesh-models")
    return folder


def heads() -> Path | None:
    """Return the folder of the heads that ship for the target; None if there are none."""
    folder = _FOLDER / HEADS
    return folder if folder.is_dir() else None


def heldout_prompts(number: int = 64) -> list[Prompt]:
    """Return the first ``number`` of 256 prompts for the demo, tests and benchmarks, 64 to 160
    tokens each. The first 64 come from nearly 64 files."""
    entries = json.loads((_FOLDER / "heldout_prompts.json").read_text(encoding="utf-8"))
    return [Prompt(**entry) for entry in entries[:number]]

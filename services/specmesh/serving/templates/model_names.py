"""The name of a model by its folder, and cheap checks of names before anything is loaded or
downloaded.

Each check raises ValueError, with a message that is complete without an option's name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

_CONFIG = "config.json"
_NUM_PARTS_OF_AN_ID = 2
"""A Hugging Face id is OWNER/NAME, or NAME alone for a few old models."""


def short_name(name: str) -> str:
    """Return the last part of a folder's path, or a Hugging Face id as it is."""
    if not Path(name).exists():
        return name
    # Path.resolve would follow a link, whose own name may be the one that lasts.
    return Path(os.path.abspath(name)).name


def check_model(name: str) -> None:
    """Refuse a folder that is missing or holds no model. Any Hugging Face id passes, since only the
    hub knows if it exists."""
    if Path(name).exists() or _is_path(name):
        check_folder(Path(name))


def check_folder(folder: Path) -> None:
    """Refuse anything but a folder with a ``config.json``, which models and heads have."""
    if not folder.exists():
        raise ValueError(f"there is no folder {str(folder)!r}")
    if not folder.is_dir():
        raise ValueError(f"{str(folder)!r} is a file: give the folder that contains it")
    if not any(folder.iterdir()):
        raise ValueError(f"the folder {str(folder)!r} is empty")
    if not (folder / _CONFIG).is_file():
        raise ValueError(f"the folder {str(folder)!r} has no {_CONFIG}: it holds no model")


def check_misspelt(name: str, known: Iterable[str]) -> None:
    """Refuse a name that closely resembles one of ``known``."""
    if close := get_close_matches(name, list(known), n=1):
        raise ValueError(f"there is no {name!r}: did you mean {close[0]!r}?")


def _is_path(name: str) -> bool:
    """Return True if ``name`` can't be a Hugging Face id."""
    parts = name.split("/")
    return len(parts) > _NUM_PARTS_OF_AN_ID or parts[0] in {"", ".", "..", "~"} or not parts[-1]

"""The formats of heads on disk. Each has a line here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.heads.draft_heads import DraftHeads
from specmesh.inference.models.heads.eagle3.folder import load_eagle3
from specmesh.inference.models.heads.eagle3.published import (
    is_authors,
    is_speculators,
    of_authors,
    of_speculators,
)
from specmesh.inference.models.heads.eagle3.served import Eagle3Heads
from specmesh.inference.models.heads.folder import CONFIG, load_stateless

Heads = DraftHeads | Eagle3Heads
"""Heads without a memory of the text, or a head that attends to it."""


@dataclass(frozen=True, slots=True)
class HeadsFormat:
    """A format: ``matches`` says whether the content of a ``config.json`` is in it."""

    name: str
    matches: Callable[[Mapping[str, Any]], bool]
    load: Callable[[Path, Mapping[str, Any], Any, str], Heads]


FORMATS = (
    HeadsFormat("specmesh", lambda config: "kind" in config, load_stateless),
    HeadsFormat(
        "speculators eagle3", is_speculators, partial(load_eagle3, describe=of_speculators)
    ),
    HeadsFormat("EAGLE-3 of its authors", is_authors, partial(load_eagle3, describe=of_authors)),
)


def load_heads(folder: str | Path, target: Any, target_digest: str) -> Heads:
    """Load the heads in ``folder`` for ``target``, a model as ``read_model`` returns it, before its
    layers are packed. They compute in its data type, on its device.

    ``target_digest`` is its ``ModelDescription.weights_digest``. Raises ``ModelNotLoadable`` for
    files that can't be read, and for heads of another target.
    """
    folder = Path(folder)
    try:
        config = json.loads((folder / CONFIG).read_bytes())
    except (OSError, ValueError) as error:
        raise ModelNotLoadable(
            f"cannot load heads from {str(folder)!r}: {CONFIG}: {error}"
        ) from error
    if isinstance(config, Mapping):
        for each in FORMATS:
            if each.matches(config):
                return each.load(folder, config, target, target_digest)
    names = ", ".join(each.name for each in FORMATS)
    raise ModelNotLoadable(
        f"cannot load heads from {str(folder)!r}: {CONFIG} is in none of the formats {names}"
    )

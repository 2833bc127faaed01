"""The prompts from a file, or those shipped with specmesh."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from specmesh.models import heldout_prompts


def read_prompts(file: Path | None) -> list[str]:
    """Return the prompts in ``file``, a JSON list of objects with a ``text``; the shipped ones if
    it is None.

    Raises BadParameter if ``file`` isn't such a list.
    """
    if file is None:
        return [prompt.text for prompt in heldout_prompts()]
    try:
        texts = [str(prompt["text"]) for prompt in json.loads(file.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise typer.BadParameter(
            f"cannot read prompts from {file}: {error!r}", param_hint="--prompts"
        ) from error
    if not texts:
        raise typer.BadParameter(f"no prompts in {file}", param_hint="--prompts")
    return texts

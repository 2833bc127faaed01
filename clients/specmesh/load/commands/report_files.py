"""Reading of the reports that earlier commands wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer


def read_report(file: Path) -> Mapping[str, Any]:
    """Return the report in ``file``. Raises BadParameter, with the field that is wrong."""
    # No other command needs pydantic, which takes a while to import.
    from specmesh.load.results.shape import check_shape

    try:
        return check_shape(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{file}: {error}") from None


def names_of(files: Sequence[Path]) -> list[str]:
    """Return what to call each file: its stem or, where stems repeat, the shortest end of its path
    that no other file has."""
    stems = Counter(file.stem for file in files)
    return [file.stem if stems[file.stem] == 1 else _own_end(file, files) for file in files]


def _own_end(file: Path, files: Sequence[Path]) -> str:
    parts = file.parts
    others = [each.parts for each in files if each != file]
    ends = (parts[-length:] for length in range(1, len(parts) + 1))
    own = (end for end in ends if all(other[-len(end) :] != end for other in others))
    return str(Path(*next(own, parts)))

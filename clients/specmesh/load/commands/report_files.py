"""Reading of the reports that earlier commands wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer


def read_report(file: Path) -> Mapping[str, Any]:
    """Return the JSON object in ``file``. Raises BadParameter."""
    try:
        report = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{file}: {error}") from None
    if not isinstance(report, dict):
        raise typer.BadParameter(f"{file} is not a report: it is not a JSON object")
    return report

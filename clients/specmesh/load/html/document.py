"""The HTML file: page, styles, scripts and data in one, which loads nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

_LIBRARY = "uPlot.iife.min.js"
_SCRIPTS = (
    *("elements.js", "marks.js", "charts.js", "distributions.js", "sections.js"),
    *("over_time.js", "by_rate.js", "differences.js", "page.js"),
)
_STYLES = ("uPlot.min.css", "page.css")


def write_page(file: Path, page: Mapping[str, Any]) -> None:
    """Write the HTML of ``page`` to ``file``. Raises OSError."""
    file.write_text(document(page), encoding="utf-8")


def document(page: Mapping[str, Any]) -> str:
    """Return the HTML of ``page``, made by ``contents``.

    Its content security policy allows exactly these scripts and styles, so that text in a report
    can neither run nor load anything.
    """
    # Line breaks separate them, because a script may end in a comment.
    library, scripts, styles = (
        "\n".join(("", *map(_asset, names), "")) for names in ((_LIBRARY,), _SCRIPTS, _STYLES)
    )
    return Template(_asset("page.html")).substitute(
        policy=f"default-src 'none'; script-src {_hash(library)} {_hash(scripts)}; "
        f"style-src {_hash(styles)}; base-uri 'none'; form-action 'none'",
        notice=_asset("uPlot.LICENSE.txt"),
        styles=styles,
        library=library,
        scripts=scripts,
        data=embedded(page),
    )


def embedded(data: Mapping[str, Any]) -> str:
    """Return ``data`` as JSON for a script element, escaped so that it cannot close the element or
    open a comment."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"

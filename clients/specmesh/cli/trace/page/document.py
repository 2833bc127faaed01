"""The page as one HTML document that contains its styles, its code and, if exported, one trace.

Modules import each other by bare names ("page/dom"), which an import map resolves to data: URLs, so
that the same files work with a server and from a disk, without a bundler. The content security
policy allows only this code, and requests only to the page's own server.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

from specmesh.cli.trace.page.plain import json_text

_START = 'import "page/main";'


def document(trace: Mapping[str, Any] | None = None) -> str:
    """Return the page. With ``trace`` (``trace_json``, and ``shorter_json`` as ``what_if``) it
    shows only that trace and makes no requests."""
    parts = _parts()
    style, modules = parts["style"], parts["modules"]
    asks = "'self'" if trace is None else "'none'"
    policy = (
        f"default-src 'none'; script-src data: {_hash(modules)} {_hash(_START)}; "
        f"style-src {_hash(style)}; connect-src {asks}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return Template(parts["frame"]).substitute(
        policy=policy,
        title="specmesh traces" if trace is None else f"trace {trace['summary']['trace_id'][:8]}",
        style=style,
        modules=modules,
        data="" if trace is None else _data(trace),
        start=_START,
    )


@cache
def _parts() -> Mapping[str, str]:
    folder = files(__package__).joinpath("assets")
    scripts = {
        file.name.removesuffix(".js"): file.read_text("utf-8")
        for file in folder.iterdir()
        if file.name.endswith(".js")
    }
    imports = {f"page/{name}": _url(name, code) for name, code in sorted(scripts.items())}
    return {
        "frame": folder.joinpath("index.html").read_text("utf-8"),
        "style": folder.joinpath("page.css").read_text("utf-8"),
        "modules": json.dumps({"imports": imports}),
    }


def _url(name: str, code: str) -> str:
    # The last line gives the browser a file name for its messages.
    text = f"{code}\n//# sourceURL=page/{name}.js\n"
    return f"data:text/javascript;base64,{base64.b64encode(text.encode()).decode()}"


def _data(trace: Mapping[str, Any]) -> str:
    # Only "</" ends a script element, and only "<!--" changes how its content is parsed.
    text = json_text(trace).replace("<", "\\u003c")
    return f'<script type="application/json" id="data">{text}</script>'


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"

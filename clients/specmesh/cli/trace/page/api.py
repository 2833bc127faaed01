"""The HTTP API of the page: the document itself, the list of traces, and single traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from specmesh.cli.trace.listing import summary_json
from specmesh.cli.trace.opening import load
from specmesh.cli.trace.page.document import document
from specmesh.cli.trace.page.filters import BadFilter, query_from
from specmesh.cli.trace.page.keys import Keyed, Keys
from specmesh.cli.trace.page.plain import json_text
from specmesh.cli.trace.shorter import shorter, shorter_json
from specmesh.cli.trace.show import trace_json
from specmesh.traces.store.reader import NoSuchTrace, StoreReader
from specmesh.traces.store.schema import StoreError

LOOPBACK = "127.0.0.1"

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def make_app(store: Path, keys: Keys) -> Starlette:
    """Make the application over ``store``: ``/``, ``/api/traces``, ``/api/traces/ID`` and
    ``/api/traces/ID/what-if``, which simulates on each request; all paths begin with the key.

    Errors are ``{"error": text}``, with the ``field`` if one is wrong.
    """

    def page(_request: Request) -> Response:
        return HTMLResponse(document(), headers=_HEADERS)

    def traces(request: Request) -> Response:
        query = query_from(request.query_params)
        with StoreReader(store) as reader:
            found = reader.select(query)
            extent = reader.extent()
        listed = [summary_json(each) for each in found]
        return _json({"traces": listed, "limit": query.limit, "num_stored": extent.num_traces})

    def trace(request: Request) -> Response:
        with StoreReader(store) as reader:
            found = load(reader, request.path_params["trace_id"])
        return _json(trace_json(found))

    def what_if(request: Request) -> Response:
        with StoreReader(store) as reader:
            found = load(reader, request.path_params["trace_id"])
        return _json(shorter_json(shorter(found).found))

    return Starlette(
        routes=[
            Route("/", page),
            Route("/api/traces", traces),
            Route("/api/traces/{trace_id}", trace),
            Route("/api/traces/{trace_id}/what-if", what_if),
        ],
        # Traces may contain texts, which must be readable neither by a foreign web page whose name
        # resolves to this machine (DNS rebinding) nor by other users of this machine.
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=[LOOPBACK, "localhost"]),
            Middleware(Keyed, keys),
        ],
        exception_handlers={BadFilter: _refused, NoSuchTrace: _missing, StoreError: _broken},
    )


def _json(value: Any, status: int = 200) -> Response:
    text = json_text(value)
    return Response(text, status, headers=_HEADERS, media_type="application/json")


def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, BadFilter)
    return _json({"error": str(error), "field": error.field}, 400)


def _missing(_request: Request, error: Exception) -> Response:
    return _json({"error": str(error)}, 404)


def _broken(_request: Request, error: Exception) -> Response:
    return _json({"error": str(error)}, 503)

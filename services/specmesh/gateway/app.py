"""The application: paths, middleware, and the answers to errors."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from specmesh.client import SpecmeshError
from specmesh.gateway.errors import ApiError, from_mesh, internal
from specmesh.gateway.http.hang_up import ClientGone
from specmesh.gateway.http.held import HeldBytes
from specmesh.gateway.http.observed import REQUEST_ID, Observed
from specmesh.gateway.http.record import CLIENT_CLOSED_REQUEST
from specmesh.gateway.mesh import KnownOrchestrators
from specmesh.gateway.model_names import ModelNames
from specmesh.gateway.routes.answers import AnswerRoutes
from specmesh.gateway.routes.models import ModelRoutes
from specmesh.gateway.routes.reception import Reception
from specmesh.gateway.routes.status import StatusRoutes
from specmesh.gateway.routes.tokenizer import TokenizerRoutes
from specmesh.gateway.settings import GatewaySettings

READ_BY_CLIENTS = (REQUEST_ID, "retry-after", "retry-after-ms", "x-should-retry")
"""Response headers that CORS exposes to pages in a browser."""


def make_app(settings: GatewaySettings, mesh: KnownOrchestrators) -> ASGIApp:
    """Return the ASGI application. Raises ``UnusableFile`` for unusable certificate files."""
    reception = Reception(settings, mesh.door)
    names = ModelNames(settings.further_names)
    models = ModelRoutes(reception, names)
    answers = AnswerRoutes(settings, reception, names)
    tokenizer = TokenizerRoutes(reception, names)
    status = StatusRoutes(reception, mesh.probe)
    starlette = Starlette(
        routes=[
            Route("/v1/models", models.list),
            Route("/v1/models/{model:path}", models.retrieve),
            Route("/v1/completions", answers.complete, methods=["POST"]),
            Route("/v1/chat/completions", answers.chat, methods=["POST"]),
            Route("/v1/responses", answers.respond, methods=["POST"]),
            Route("/tokenize", tokenizer.tokenize, methods=["POST"]),
            Route("/detokenize", tokenizer.detokenize, methods=["POST"]),
            Route("/version", status.version),
            Route("/healthz", status.health),
            Route("/health", status.health),  # where load generators look
        ],
        exception_handlers={
            ApiError: _tell,
            SpecmeshError: _tell,
            HTTPException: _tell_http,
            ClientGone: _tell_nobody,
            Exception: _tell_internal,
        },
    )
    # Behind a proxy that ends TLS a redirection would lead to plain HTTP.
    starlette.router.redirect_slashes = False
    held = HeldBytes(starlette, settings.max_held_bytes)
    return Observed(_for_browsers(held, settings.browsers_origins))


def _for_browsers(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """Let pages of ``origins`` call ``app``. CORS wraps the whole application, since pages must be
    able to read errors, too."""
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=("GET", "POST"),
        allow_headers=("*",),  # OpenAI's client sends about ten of its own
        expose_headers=READ_BY_CLIENTS,
    )


async def _tell(request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, ApiError | SpecmeshError)
    record = request.state.record
    if isinstance(error, SpecmeshError):
        told = from_mesh(error, record.names, knows_caller=bool(record.identity))
    else:
        told = error
    _let_go(error)
    record.failed(told)
    return JSONResponse(told.body, told.status, told.headers)


def _let_go(error: BaseException | None) -> None:
    """Clear the frames in the tracebacks of ``error`` and its causes.

    The frames hold the request's body and the task that raised, and the task holds the error: this
    cycle would keep the body in memory until the next garbage collection.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


async def _tell_http(request: HttpRequest, error: Exception) -> Response:
    """Answer Starlette's own errors: an unknown path, or a method that the path does not have."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path[:128]}: {error.detail}"
    told = ApiError(error.status_code, message, code=HTTPStatus(error.status_code).name.lower())
    request.state.record.failed(told)
    return JSONResponse(told.body, told.status, {**(error.headers or {}), **told.headers})


async def _tell_internal(request: HttpRequest, error: Exception) -> Response:  # noqa: ARG001
    return await _tell(request, internal(request.state.record.request_id))


async def _tell_nobody(request: HttpRequest, error: Exception) -> Response:  # noqa: ARG001
    return Response(status_code=CLIENT_CLOSED_REQUEST)

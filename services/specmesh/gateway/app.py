"""The routes of the gateway and their handlers."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from specmesh.client import ServedModel, SpecmeshError
from specmesh.gateway.errors import ApiError, from_mesh, internal
from specmesh.gateway.http.body import parse_object, read_body
from specmesh.gateway.http.hang_up import ClientGone, unless_gone
from specmesh.gateway.http.held import HeldBytes
from specmesh.gateway.http.observed import REQUEST_ID, Observed
from specmesh.gateway.http.record import CLIENT_CLOSED_REQUEST
from specmesh.gateway.http.sse import stream
from specmesh.gateway.identity import Caller
from specmesh.gateway.mesh import KnownOrchestrators
from specmesh.gateway.peers import PeerCheck
from specmesh.gateway.requests.chats import chat_request
from specmesh.gateway.requests.completions import completion_request
from specmesh.gateway.requests.request import Request
from specmesh.gateway.responses import answers
from specmesh.gateway.responses.answers import AnswerStreams
from specmesh.gateway.responses.chats import ChatStyle
from specmesh.gateway.responses.completions import CompletionStyle
from specmesh.gateway.responses.envelope import Envelope, Json
from specmesh.gateway.settings import GatewaySettings
from specmesh.serving.identity.certificates import watched_certificate

R = TypeVar("R", bound=Request)

INLINE_BYTES = 2**14
"""Larger bodies are parsed in a thread, so that streams don't stall meanwhile."""
BODY_SECONDS = 30.0
"""The time limit for a body to arrive."""
READ_BY_CLIENTS = (REQUEST_ID, "retry-after", "retry-after-ms", "x-should-retry")
"""Response headers that CORS exposes to pages in a browser."""


class Routes:
    """The handlers of all routes."""

    def __init__(self, settings: GatewaySettings, mesh: KnownOrchestrators) -> None:
        self._settings = settings
        self._mesh = mesh
        asked_for = settings.tls if settings.requires_certificates else None
        self._peers = PeerCheck(None if asked_for is None else watched_certificate(asked_for))
        self._began = int(time.time())
        # One thread: only one body at a time takes more memory than its bytes.
        self._reading = ThreadPoolExecutor(1, "reading")

    async def list_models(self, request: HttpRequest) -> Response:
        """GET /v1/models."""
        models = await self._models(request)
        return JSONResponse({"object": "list", "data": [self._described(each) for each in models]})

    async def model(self, request: HttpRequest) -> Response:
        """GET /v1/models/{id}."""
        name = request.path_params["model"]
        for each in await self._models(request):
            if each.target.name == name:
                return JSONResponse(self._described(each))
        message = f"there is no model {name[:64]!r}"
        raise ApiError(HTTPStatus.NOT_FOUND, message, param="model", code="model_not_found")

    async def complete(self, request: HttpRequest) -> Response:
        """POST /v1/completions."""
        caller, asked = await self._received(request, completion_request)
        self._check_count(len(asked.prompts) * asked.n, "prompt" if asked.n == 1 else "n")
        request.state.held.repeat(asked.n)
        wanted = answers.complete(caller.client, asked, self._settings.request_seconds)
        return await self._respond(request, asked, wanted, Envelope(CompletionStyle(), asked.model))

    async def chat(self, request: HttpRequest) -> Response:
        """POST /v1/chat/completions."""
        caller, asked = await self._received(request, chat_request)
        self._check_count(asked.n, "n")
        request.state.held.repeat(asked.n)
        wanted = answers.chat(caller.client, asked, self._settings.request_seconds)
        style = ChatStyle(asked.parallel_tool_calls, asked.include_reasoning)
        return await self._respond(request, asked, wanted, Envelope(style, asked.model))

    async def health(self, request: HttpRequest) -> Response:  # noqa: ARG002
        """GET /healthz."""
        if await self._mesh.is_there():
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "no orchestrator answers"}, HTTPStatus.SERVICE_UNAVAILABLE)

    async def _models(self, request: HttpRequest) -> tuple[ServedModel, ...]:
        return await unless_gone(request, (await self._admitted(request)).client.list_models())

    async def _admitted(self, request: HttpRequest) -> Caller:
        self._peers.check(request)
        caller = await self._mesh.door.admit(request)
        request.state.record.identity = caller.identity
        for name in request.query_params:
            message = f"unknown query parameter {name[:64]!r}"
            raise ApiError.invalid(name[:64], message, code="unknown_parameter")
        return caller

    async def _received(
        self, request: HttpRequest, read: Callable[[Mapping[str, object]], R]
    ) -> tuple[Caller, R]:
        """Admit the caller, then receive and parse the body."""
        caller = await self._admitted(request)
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await read_body(
                    request, self._settings.max_request_bytes, request.state.held
                )
        except TimeoutError:
            message = f"the body did not arrive within {BODY_SECONDS:.0f} s"
            raise ApiError(HTTPStatus.REQUEST_TIMEOUT, message, code="body_timeout") from None
        if len(body) <= INLINE_BYTES:
            return caller, read(parse_object(body))
        reading = asyncio.get_running_loop().run_in_executor(
            self._reading, lambda: read(parse_object(body))
        )
        return caller, await unless_gone(request, _result(reading))

    def _check_count(self, num_answers: int, param: str) -> None:
        if num_answers > self._settings.max_answers:
            raise ApiError.invalid(
                param,
                f"the request asks for {num_answers} answers (prompts times n); "
                f"the limit is {self._settings.max_answers}",
            )

    async def _respond(
        self, request: HttpRequest, asked: Request, wanted: AnswerStreams, envelope: Envelope
    ) -> Response:
        record = request.state.record
        record.model = asked.model
        record.is_stream = asked.stream
        if asked.stream:
            return await stream(
                request,
                wanted,
                envelope,
                include_usage=asked.include_usage,
                ping_s=self._settings.ping_seconds,
            )
        results = await unless_gone(request, wanted.whole())
        record.answered(results)
        return JSONResponse(envelope.response(results, asked.n))

    def _described(self, model: ServedModel) -> Json:
        described = {
            "context_tokens": model.target.context_tokens,
            "has_chat_template": model.has_chat_template,
            "tool_format": model.tool_format,
            "reasoning_format": model.reasoning_format,
            "default_strategy": model.default_strategy,
            "strategies": [each.name for each in model.strategies if each.available],
        }
        return {
            "id": model.target.name,
            "object": "model",
            "created": self._began,
            "owned_by": "specmesh",
            "specmesh": described,
        }


def make_app(settings: GatewaySettings, mesh: KnownOrchestrators) -> ASGIApp:
    """Return the ASGI application. Raises ``UnusableFile`` for unusable certificate files."""
    routes = Routes(settings, mesh)
    app: ASGIApp = Starlette(
        routes=[
            Route("/v1/models", routes.list_models),
            Route("/v1/models/{model:path}", routes.model),
            Route("/v1/completions", routes.complete, methods=["POST"]),
            Route("/v1/chat/completions", routes.chat, methods=["POST"]),
            Route("/healthz", routes.health),
            Route("/health", routes.health),  # where load generators look
        ],
        exception_handlers={
            ApiError: _tell,
            SpecmeshError: _tell,
            HTTPException: _tell_http,
            ClientGone: _tell_nobody,
            Exception: _tell_internal,
        },
    )
    held = HeldBytes(app, settings.max_held_bytes)
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


async def _result(work: Awaitable[R]) -> R:
    return await work


async def _tell(request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, ApiError | SpecmeshError)
    told = from_mesh(error) if isinstance(error, SpecmeshError) else error
    _let_go(error)
    request.state.record.failed(told)
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

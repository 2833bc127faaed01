"""Signals to clients that the gateway, which still answers, is about to shut down."""

from __future__ import annotations

from http import HTTPStatus

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEALTH_PATHS = frozenset({"/healthz", "/health"})


class Leaving:
    """ASGI middleware. Once ``leaves`` is set, health checks get 503 and every response closes its
    connection, so that the client's next request looks for another gateway."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.leaves = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def closing(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["connection"] = "close"
            await send(message)

        if not self.leaves:
            await self._app(scope, receive, send)
        elif scope["path"] in HEALTH_PATHS:
            going = JSONResponse({"status": "shutting down"}, HTTPStatus.SERVICE_UNAVAILABLE)
            await going(scope, receive, closing)
        else:
            await self._app(scope, receive, closing)

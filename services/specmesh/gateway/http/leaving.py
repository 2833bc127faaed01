"""Signals to clients that the gateway, which still answers, is about to shut down."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEALTH_PATHS = frozenset({"/healthz", "/health"})


class Leaving:
    """ASGI middleware. Once ``leaves`` is set, health checks get 503 and every response closes its
    connection, so that the client's next request looks for another gateway.

    It sets ``request.state.broken_off`` to a future that is done once the request must end.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.leaves = False
        self._running: set[asyncio.Future[None]] = set()

    def break_off(self) -> None:
        """Have all requests that still run end with an error."""
        for broken_off in self._running:
            if not broken_off.done():
                broken_off.set_result(None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        broken_off = asyncio.get_running_loop().create_future()
        scope.setdefault("state", {})["broken_off"] = broken_off
        self._running.add(broken_off)
        try:
            await self._answer(scope, receive, send)
        finally:
            self._running.remove(broken_off)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
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

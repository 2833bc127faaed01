"""What callers notice of a gateway that is about to end, while it still answers."""

from __future__ import annotations

from http import HTTPStatus

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEALTH_PATHS = frozenset({"/healthz", "/health"})


class Leaving:
    """ASGI middleware. Once ``leaves`` is set, health is 503 and every answer is the last on its
    connection: the client's next request looks for another gateway."""

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

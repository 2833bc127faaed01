"""Responses to HTTP/1.0 clients, which know no chunks: a body of unknown length ends with the
connection (RFC 9112, 6.3). uvicorn sends chunks to everybody."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle


class SparesOldClients(HttpToolsProtocol):
    """A connection that sends no chunks to clients of HTTP/1.0."""

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start to answer a request."""
        if cycle.scope["http_version"] == "1.0":
            app = partial(_without_chunks, app, cycle)
        super()._start_asgi_task(cycle, app)


async def _without_chunks(
    app: ASGIApp, cycle: RequestResponseCycle, scope: Scope, receive: Receive, send: Send
) -> None:
    """Have ``app`` answer. ``cycle`` closes the connection after it in any case."""

    is_counted = False

    async def sending(message: Message) -> None:
        nonlocal is_counted
        if message["type"] == "http.response.start":
            is_counted = any(name == b"content-length" for name, _ in message["headers"])
            cycle.chunked_encoding = None if is_counted else False
        elif message["type"] == "http.response.body" and not is_counted:
            cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    await app(scope, receive, sending)

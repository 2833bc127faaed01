"""The address of the server that answers the current call."""

from __future__ import annotations

from contextvars import ContextVar

from specmesh.serving.conventions import SERVER_ADDRESS, SERVER_PORT

_server: ContextVar[tuple[str, int] | None] = ContextVar("_server", default=None)


def listens(host: str, port: int) -> None:
    """Set the address of the server that is started next, whose calls inherit this context."""
    _server.set((host, port))


def server_attributes() -> dict[str, str | int]:
    """Return ``server.address`` and ``server.port``; nothing before the server listens."""
    server = _server.get()
    return {} if server is None else {SERVER_ADDRESS: server[0], SERVER_PORT: server[1]}

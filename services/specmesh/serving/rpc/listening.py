"""Where the server listens that answers this call."""

from __future__ import annotations

from contextvars import ContextVar

from specmesh.serving.conventions import SERVER_ADDRESS, SERVER_PORT

_server: ContextVar[tuple[str, int] | None] = ContextVar("_server", default=None)


def listens(host: str, port: int) -> None:
    """Say where the server listens that is started next: its calls inherit this context."""
    _server.set((host, port))


def server_attributes() -> dict[str, str | int]:
    """``server.address`` and ``server.port``, once the server listens."""
    server = _server.get()
    return {} if server is None else {SERVER_ADDRESS: server[0], SERVER_PORT: server[1]}

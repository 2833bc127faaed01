"""Serves the page on this machine until Ctrl-C."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from specmesh.cli.trace.page.api import LOOPBACK, make_app


def serve(store: Path, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve ``store`` on ``port`` of loopback (0: any free one); ``on_ready`` gets the URL once
    requests are taken. Raises OSError if the port can't be had."""
    with socket.create_server((LOOPBACK, port)) as listener:
        # From here on requests wait for the server instead of failing.
        on_ready(f"http://{LOOPBACK}:{listener.getsockname()[1]}/")
        config = uvicorn.Config(make_app(store), log_level="warning", access_log=False)
        config.timeout_graceful_shutdown = 1
        uvicorn.Server(config).run([listener])

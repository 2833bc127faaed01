"""Serves the page on this machine until Ctrl-C."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import uvicorn

from specmesh.cli.trace.page.api import LOOPBACK, make_app
from specmesh.cli.trace.page.keys import Keys


def serve(store: Path, port: int, on_ready: Callable[[str, str], None]) -> NoReturn:
    """Serve ``store`` on ``port`` of loopback (0: any free one); ``on_ready`` gets the URL once
    requests are taken, and another that works once.

    Raises OSError if the port can't be had, and KeyboardInterrupt in the end.
    """
    keys = Keys()
    with socket.create_server((LOOPBACK, port)) as listener:
        # From here on requests wait for the server instead of failing.
        # Else the body of an answer waits up to 40 ms for the browser to acknowledge the headers.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        address = f"http://{LOOPBACK}:{listener.getsockname()[1]}"
        on_ready(f"{address}/{keys.key}/", f"{address}/{keys.ticket()}/")
        config = uvicorn.Config(make_app(store, keys), log_level="warning", access_log=False)
        config.timeout_graceful_shutdown = 1
        uvicorn.Server(config).run([listener])
    # Ctrl-C alone ends it, after which uvicorn mostly raises this itself, and at times returns.
    raise KeyboardInterrupt

"""The local web server of the page."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import uvicorn

from specmesh.cli.trace.page.api import LOOPBACK, make_app
from specmesh.cli.trace.page.keys import Keys


def serve(store: Path, port: int, on_ready: Callable[[str, str], None]) -> NoReturn:
    """Serve ``store`` on ``port`` of the loopback interface (0: any free one) until Ctrl-C.

    Once it accepts requests, it calls ``on_ready`` with the page's URL and one that works once.
    Raises OSError if it can't listen on the port, and KeyboardInterrupt at the end.
    """
    keys = Keys()
    with socket.create_server((LOOPBACK, port)) as listener:
        # From here on requests wait for the server instead of failing. Without TCP_NODELAY a
        # response's body waits up to 40 ms until the browser has acknowledged the headers.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        address = f"http://{LOOPBACK}:{listener.getsockname()[1]}"
        on_ready(f"{address}/{keys.key}/", f"{address}/{keys.ticket()}/")
        config = uvicorn.Config(make_app(store, keys), log_level="warning", access_log=False)
        config.timeout_graceful_shutdown = 1
        uvicorn.Server(config).run([listener])
    # Only Ctrl-C ends the server; then uvicorn usually raises this itself, but sometimes returns.
    raise KeyboardInterrupt

"""``/metrics`` for Prometheus and ``/healthz`` for probes, over plain HTTP on a port of their own.

A thread answers, so that even a busy process answers its probes. Neither TLS nor a token is
needed, and no response holds text, sessions or identities; still, only monitoring should reach the
port.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterable
from socketserver import TCPServer, ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app

from specmesh.serving.conventions import SERVICE_NAME
from specmesh.serving.telemetry.readers import ScrapeReader

log = logging.getLogger(__name__)

CLIENT_SECONDS = 10.0
"""The time limit for a client to send its request, and to read the response."""


class Scrape:
    """A server of the process's own metrics and those of a MeterProvider that has ``reader``."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self.reader = ScrapeReader(
            scope_info_enabled=False,
            # Distinguishes roles if one scrape job covers all of them.
            resource_attribute_filter=lambda key: key == SERVICE_NAME,
            registry=self._registry,
        )
        self._server: _Server | None = None

    def listen(self, host: str, port: int) -> str:
        """Start to answer; return the address, "host:port". Raises ``OSError``."""
        self._server = _Server(host, port, _app(self._registry))
        threading.Thread(target=self._server.serve_forever, name="scrape", daemon=True).start()
        shown = f"[{host}]" if ":" in host else host
        return f"{shown}:{self._server.server_port}"

    def close(self) -> None:
        """Stop answering."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


def _app(registry: CollectorRegistry) -> WSGIApplication:
    metrics = make_wsgi_app(registry)
    # The reader has one buffer for collected metrics, so concurrent scrapes would mix.
    turn = threading.Lock()

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            with turn:
                body: Iterable[bytes] = metrics(environ, start_response)
            return body
        found = path == "/healthz"
        status, answer = ("200 OK", b"ok\n") if found else ("404 Not Found", b"not found\n")
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [answer]

    return app


class _Handler(WSGIRequestHandler):
    timeout = CLIENT_SECONDS

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing, since scrapes are frequent."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, app: WSGIApplication) -> None:
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), _Handler)
        self.set_app(app)

    def server_bind(self) -> None:
        """Bind without the reverse lookup of the host name in ``HTTPServer``, which may take
        seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.socket.getsockname()[:2]
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        """Log the error of a client's connection, at a level that is off by default."""
        log.debug("scrape broke", exc_info=True)

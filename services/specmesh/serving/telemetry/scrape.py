"""``/metrics`` for Prometheus and ``/healthz`` for probes, over plain HTTP on a port of their own.

A thread answers, so that a probe of a busy process is answered too, and needs neither TLS nor a
token. What is told has no text, session or identity in it; still, only the monitoring should reach
the port.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterable
from socketserver import TCPServer, ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app

from specmesh.serving.conventions import SERVICE_NAME

log = logging.getLogger(__name__)

CLIENT_SECONDS = 10.0
"""How long a client may take for its request, and to read what it asked for."""


class Scrape:
    """The metrics of one MeterProvider, which must have ``reader``, and of the process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self.reader = PrometheusMetricReader(
            scope_info_enabled=False,
            # Tells roles apart where one scrape job has them all.
            resource_attribute_filter=lambda key: key == SERVICE_NAME,
            registry=self._registry,
        )
        self._server: _Server | None = None

    def listen(self, host: str, port: int) -> str:
        """Answer from now on; returns the address, "host:port". Raises ``OSError``."""
        self._server = _Server(host, port, _app(self._registry))
        threading.Thread(target=self._server.serve_forever, name="scrape", daemon=True).start()
        shown = f"[{host}]" if ":" in host else host
        return f"{shown}:{self._server.server_port}"

    def close(self) -> None:
        """Answer no more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


def _app(registry: CollectorRegistry) -> WSGIApplication:
    metrics = make_wsgi_app(registry)
    # The reader keeps what it has collected in one place: two scrapes at once would mix.
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
        """Log nothing: scrapes are many."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, app: WSGIApplication) -> None:
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), _Handler)
        self.set_app(app)

    def server_bind(self) -> None:
        """Bind, but without looking up the host's name as ``HTTPServer`` does: that may take
        seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.socket.getsockname()[:2]
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        """Log what a client's connection broke with, at a level that is off by default."""
        log.debug("scrape broke", exc_info=True)

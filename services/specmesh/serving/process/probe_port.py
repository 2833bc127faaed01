"""gRPC health in plain text on a port of its own, for probes without a certificate.

The kubelet's gRPC probes don't support TLS. This port answers health checks and nothing else.
"""

from __future__ import annotations

import grpc.aio

from specmesh.serving.rpc.health import Health

_OPTIONS = (
    ("grpc.max_receive_message_length", 1024),
    ("grpc.max_concurrent_streams", 16),
    ("grpc.max_connection_idle_ms", 60_000),
)


class ProbePort:
    """A server that answers health checks and nothing else, on a port that other processes share if
    ``shares_port``."""

    def __init__(self, health: Health, *, shares_port: bool = False) -> None:
        reuse = ("grpc.so_reuseport", int(shares_port))
        self._server = grpc.aio.server(options=(reuse, *_OPTIONS))
        health.add_to(self._server)

    async def listen(self, host: str, port: int) -> str:
        """Start to answer; return the address, "host:port". Raises ``OSError``."""
        shown = f"[{host}]" if ":" in host else host
        try:
            port = self._server.add_insecure_port(f"{shown}:{port}")
        except RuntimeError as error:  # gRPC gives no further reason
            message = "the port is taken, or the host is not an address of this machine"
            raise OSError(message) from error
        await self._server.start()
        return f"{shown}:{port}"

    async def close(self) -> None:
        """Stop answering."""
        await self._server.stop(None)

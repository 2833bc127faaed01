"""gRPC health in plain text on a port of its own, for whoever has no certificate.

The kubelet's gRPC probes speak no TLS. What they find here is whether the process starts, lives and
can be called, and nothing else is answered.
"""

from __future__ import annotations

import grpc.aio

from specmesh.serving.rpc.health import Health

_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 1024),
    ("grpc.max_concurrent_streams", 16),
    ("grpc.max_connection_idle_ms", 60_000),
)


class ProbePort:
    """A server that answers health checks and nothing else."""

    def __init__(self, health: Health) -> None:
        self._server = grpc.aio.server(options=_OPTIONS)
        health.add_to(self._server)

    async def listen(self, host: str, port: int) -> str:
        """Answer from now on; returns the address, "host:port". Raises ``OSError``."""
        shown = f"[{host}]" if ":" in host else host
        try:
            port = self._server.add_insecure_port(f"{shown}:{port}")
        except RuntimeError as error:  # which says no more
            raise OSError("the port is taken, or the host is not of this machine") from error
        await self._server.start()
        return f"{shown}:{port}"

    async def close(self) -> None:
        """Answer no more."""
        await self._server.stop(None)

"""A service of a mesh whose metrics can be scraped."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

from specmesh.cli.local.process import ProcessSpec
from specmesh.cli.local.service import service_spec


def observed(
    role: str,
    name: str,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    cores: frozenset[int] = frozenset(),
) -> tuple[ProcessSpec, str]:
    """Return a process as ``service_spec`` does, and the address of its metrics."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        metrics = f"127.0.0.1:{probe.getsockname()[1]}"
    arguments = (*arguments, "--metrics-address", metrics)
    return service_spec(role, name, arguments, environment=environment, cores=cores), metrics

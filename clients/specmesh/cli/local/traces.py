"""The process that keeps the traces of a local mesh, and what makes the others send them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from specmesh.cli.local.logs import serving_address
from specmesh.cli.local.process import PORT, ProcessSpec

COLLECTOR = "traces"
"""The process's name."""

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class Keep(StrEnum):
    """Which traces are kept."""

    OFF = "off"
    """None, and none are made."""
    RATIO = "ratio"
    """Slow and failed ones, and a share of the others."""
    ALL = "all"


@dataclass(frozen=True, slots=True)
class TraceKeeping:
    """Traces are kept in the file ``store``."""

    keep: Keep
    store: Path

    def spec(self, cores: frozenset[int]) -> ProcessSpec:
        """The collector's process."""
        return ProcessSpec(
            name=COLLECTOR,
            command=(
                *(sys.executable, "-m", "specmesh.traces.collector"),
                *("--grpc-port", PORT, "--http-port", "0"),
                *("--store", str(self.store), "--keep", self.keep.value),
            ),
            ready=serving_address,
            cores=cores,
        )


def sending_to(address: str) -> Mapping[str, str]:
    """The environment of a process that sends all its spans to the collector at ``address``,
    which then decides: no span may be left out before."""
    return {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://{address}",
        # Whatever is set for other programs: these spans are for the collector of this mesh.
        "OTEL_SDK_DISABLED": "false",
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc",
        "OTEL_TRACES_SAMPLER": "always_on",
        "OTEL_BSP_SCHEDULE_DELAY": "1000",
        "OTEL_BSP_MAX_QUEUE_SIZE": "16384",
    }


def sent_elsewhere() -> str | None:
    """Where the environment has traces sent already."""
    return next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), None)

"""The process that collects the traces of a local mesh, and the environment to send them to it."""

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

TRACES_PER_SECOND = "1"
"""New traces per second under load with `Keep.RATIO`."""

_NICENESS = 10
"""Niceness of the collector, so that it yields the cores to the mesh that it observes."""

NOT_SENDING = {"OTEL_TRACES_EXPORTER": "none"}
"""The environment of a process that sends no spans, whatever the user's environment asks for."""

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class Keep(StrEnum):
    """The traces that are kept."""

    OFF = "off"
    """No traces are recorded."""
    RATIO = "ratio"
    """Slow and failed traces are kept, and a share of the others. Under load, about one answer per
    second is traced."""
    ALL = "all"
    """All traces are kept."""


@dataclass(frozen=True, slots=True)
class TraceKeeping:
    """The choice of traces to keep in the file ``store``."""

    keep: Keep
    store: Path

    def spec(self, cores: frozenset[int]) -> ProcessSpec:
        """Return the collector's process."""
        return ProcessSpec(
            name=COLLECTOR,
            command=(
                *(sys.executable, "-P", "-m", "specmesh.traces.collector"),
                *("--grpc-port", PORT, "--http-port", "0"),
                *("--store", str(self.store), "--keep", self.keep.value),
            ),
            ready=serving_address,
            cores=cores,
            niceness=_NICENESS,
        )


def sending_to(address: str, keep: Keep) -> Mapping[str, str]:
    """Return the environment of a process that sends its spans to the collector at ``address``.

    The collector chooses among whole traces, so a process sends all spans of the traces that are
    recorded. With ``Keep.RATIO`` their number per second is limited, which bounds what tracing
    costs under load.
    """
    return {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://{address}",
        # Override what the user's environment sets for other programs.
        "OTEL_SDK_DISABLED": "false",
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc",
        "OTEL_TRACES_SAMPLER": "parentbased_rate_limited"
        if keep is Keep.RATIO
        else "parentbased_always_on",
        "OTEL_TRACES_SAMPLER_ARG": TRACES_PER_SECOND,
        "OTEL_BSP_SCHEDULE_DELAY": "1000",
        "OTEL_BSP_MAX_QUEUE_SIZE": "16384",
    }


def sent_elsewhere() -> str | None:
    """Return the endpoint to which the environment already sends traces, if any."""
    return next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), None)

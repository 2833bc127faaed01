"""The machine and versions in a report: those of the generator, not of the servers."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

_PACKAGES = ("specmesh", "grpcio", "aiohttp", "hdrhistogram")
_CPU_INFO = Path("/proc/cpuinfo")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that generate the load."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}


def machine() -> dict[str, Any]:
    """Describe the machine that runs the generator."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "load_average": list(psutil.getloadavg()),
    }


def _processor() -> str:
    if _CPU_INFO.exists():
        for line in _CPU_INFO.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()

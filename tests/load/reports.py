"""Reports, as their JSON has them, of runs that tests make up."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import cache
from typing import Any

from tests.load.conftest import observed, seen, workload

from specmesh.load.commands.session import described
from specmesh.load.generators.fleet import Busy
from specmesh.load.results.histograms import Histogram
from specmesh.load.results.objectives import Objectives
from specmesh.load.results.report import (
    Point,
    Result,
    RunReport,
    RunSetting,
    SearchReport,
    ServerLoad,
    ServerSample,
    SweepReport,
)
from specmesh.load.runs.summary import summarise
from specmesh.load.transports.observation import MeshWork, Observation, RequestOutcome
from specmesh.load.workload.plan import RunLength, Workload
from specmesh.load.workload.variations import Variation

OBJECTIVES = Objectives(ttft_s=0.15, e2e_s=1.0)
MIXED = workload(
    variations=(Variation(strategy="dsi"), Variation(strategy="autoregressive")),
    extent=RunLength(warm_up_s=2.0, duration_s=20.0, cool_down_s=2.0),
)
_WORK = MeshWork(4, 12, 16, 10, 8, 6)


@cache
def mixed_run(reason: str = "OVERLOADED") -> Result:
    """A run of two strategies with some failures, all of which have ``reason``, and two servers."""
    found = seen(_observations(reason), [Busy(0.0, 0.0), Busy(22.0, 2.2)])
    for each in (0.001, 0.04, 0.05):
        found.chunks.gaps.add(Histogram.of([each]))
        found.chunks.token_gaps.add(Histogram.of([each / 2] * 2))
    found.chunks.sizes.update(Counter({1: 90, 2: 8, 5: 2}))
    servers = [_server("orchestrator", 57151), _server("verifier", 57161)]
    return summarise(MIXED, found, OBJECTIVES, servers, 3)


def run_report(
    result: Result | None = None, load: Workload = MIXED, **given: Any
) -> dict[str, Any]:
    """Of ``specmesh load run``."""
    made = RunReport(setting=setting(load, **given), result=result or mixed_run())
    return read(made)


def sweep_report(points: Iterable[Point], **given: Any) -> dict[str, Any]:
    """Of ``specmesh load sweep``."""
    return read(SweepReport(setting=setting(MIXED, **given), points=list(points)))


def search_report(
    points: Iterable[Point], highest: float | None, missed: float | None
) -> dict[str, Any]:
    """Of ``specmesh load search``."""
    return read(
        SearchReport(
            setting=setting(MIXED),
            share=0.95,
            highest_rate=highest,
            lowest_missed_rate=missed,
            points=list(points),
        )
    )


def point(rate: float, *, saturated: str = "", **changed: str) -> Point:
    """One of a sweep."""
    return Point(
        rate=rate,
        changed=changed,
        setting=setting(MIXED),
        saturated=saturated,
        meets=None,
        result=mixed_run(),
    )


def setting(load: Workload, **given: Any) -> RunSetting:
    """Of a run of ``load``."""
    fields: dict[str, Any] = {
        "command": "specmesh load run --rate 10",
        "server": "gRPC a:1",
        "model": "",
        "chat": False,
        "seed": load.seed,
        "processes": 1,
        "workload": described(load),
        "versions": {"python": "3.11.7"},
        "machine": {
            "system": "Linux 6.1",
            "processor": "AMD EPYC",
            "cores": 2,
            "memory_bytes": 2**34,
            "load_average": [0.5, 0.4, 0.3],
        },
    }
    return RunSetting(**{**fields, **given})


def read(report: Any) -> dict[str, Any]:
    """As it is read from its file."""
    found: dict[str, Any] = json.loads(json.dumps(asdict(report), allow_nan=False))
    return found


def _observations(reason: str) -> list[Observation]:
    found = [
        observed(
            n / 10,
            ttft_s=0.05 + (n % 7) / 50,
            e2e_s=0.4 + (n % 11) / 20,
            conversation=n,
            variation=n % 2,
            work=_WORK,
            trace_id=f"{n + 1:032x}",
        )
        for n in range(240)
    ]
    for n in range(50, 240, 40):
        failed = replace(found[n], outcome=RequestOutcome.FAILED, reason=reason, first_s=None)
        found[n] = failed
    return found


def _server(role: str, port: int) -> ServerLoad:
    samples = [
        ServerSample(
            t_s=2.0 * n,
            cpu_cores=0.1 * (n % 4),
            forward_share=None,
            queue_depth=float(n % 3) if role == "verifier" else None,
            waiting=None,
            resident_bytes=1e8,
        )
        for n in range(12)
    ]
    return ServerLoad(
        address=f"127.0.0.1:{port}",
        role=role,
        cpu_cores=0.15,
        forward_share=None,
        queue_mean_ms=3.0,
        max_queue_depth=2.0,
        max_waiting=None,
        samples=samples,
    )

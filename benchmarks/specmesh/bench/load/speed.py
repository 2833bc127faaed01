"""The rate of short answers that one generator process drives, on its own core."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from specmesh.cli.local.logs import serving_address
from specmesh.cli.local.process import Process, ProcessSpec
from specmesh.load.results.report import GeneratorResult
from specmesh.load.runs.conduct import RunPlan, conduct
from specmesh.load.transports.mesh_transport import MeshDoor
from specmesh.load.workload.arrivals import Poisson
from specmesh.load.workload.conversations import Synthetic
from specmesh.load.workload.lengths import ConstantLength
from specmesh.load.workload.plan import RunLength, Workload
from specmesh.load.workload.variations import Variation

_WARM_UP_S = 1.0
_START_S = 30.0
_PROMPT_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Speed:
    """The result. ``stub_cpu_share`` is the share of a core that the server used."""

    offered_per_s: float
    answered_per_s: float
    failed: int
    stub_cpu_share: float
    generator: GeneratorResult

    @property
    def per_core(self) -> float:
        """Return the answers per second of the generator's CPU time."""
        return self.answered_per_s / max(self.generator.processes[0].cpu_share, 1e-9)


async def measure(
    rate: float, num_tokens: int, duration_s: float, cores: list[int], directory: Path
) -> Speed:
    """Send ``rate`` requests per second, each of ``num_tokens`` tokens in as many chunks, to a stub
    on the last of ``cores``. Raises StartError."""
    spec = ProcessSpec(
        name="stub",
        command=(sys.executable, "-P", "-m", "specmesh.bench.load.stub", str(num_tokens)),
        ready=serving_address,
        cores=frozenset(cores[-1:]),
    )
    stub = await Process.start(spec, directory, _START_S)
    try:
        workload = Workload(
            arrivals=Poisson(rate),
            conversations=Synthetic(prompt_tokens=ConstantLength(_PROMPT_TOKENS)),
            extent=RunLength(warm_up_s=_WARM_UP_S, duration_s=duration_s),
            variations=(Variation(),),
            output_tokens=ConstantLength(num_tokens),
        )
        before = _cpu_s(stub.pid)
        run = await conduct(RunPlan(workload=workload, door=MeshDoor((stub.address,))))
        spent_s = _cpu_s(stub.pid) - before
    finally:
        await stub.stop(1.0)
    return Speed(
        offered_per_s=run.result.throughput.offered_per_s,
        answered_per_s=run.result.throughput.answered_per_s,
        failed=run.result.counts.failed,
        stub_cpu_share=round(spent_s / (_WARM_UP_S + duration_s), 4),
        generator=run.result.generator,
    )


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)

"""The waits in a real mesh that is a queue M/D/1, as ``specmesh load`` measures them.

Each answer is one token of a target that computes for a fixed time and one forward at a time, so
all waiting is for that. The remaining time of a request is measured in the same run, as the mean of
those that were sent while no other was under way, the share 1 − ρ or a little less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from specmesh.bench.load.queue import Md1, waits_s
from specmesh.cli.local.mesh import LocalMesh, MeshOptions
from specmesh.cli.local.models import WaitingModels
from specmesh.load.results.histograms import percentile_of
from specmesh.load.results.report import GeneratorResult
from specmesh.load.runs.conduct import RunPlan, conduct
from specmesh.load.transports.mesh_transport import MeshDoor
from specmesh.load.transports.observation import Observation
from specmesh.load.workload.arrivals import Poisson
from specmesh.load.workload.conversations import Synthetic
from specmesh.load.workload.lengths import ConstantLength
from specmesh.load.workload.plan import RunLength, Workload
from specmesh.load.workload.variations import Variation

MEAN_BOUND = 0.05
"""Allowed difference of the mean wait from that of the ideal queue, as a share of it."""
P95_BOUND = 0.10
_WARM_UP_RELAXATIONS = 5
"""Warm-up until the queue has forgotten that it began empty, in times of 1 / (1 − ρ)² services,
over which it forgets: at ρ = 0.7 some ten services, at 0.95 four hundred."""
_LEAST_WARM_UP_S = 1.0
_PROMPT_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Waits:
    """Statistics of waits, in milliseconds."""

    mean: float
    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, waits: Sequence[float]) -> Waits:
        """Return the statistics of ``waits``, which are in seconds."""
        percentiles = (percentile_of(waits, percent) for percent in (50, 95, 99))
        return cls(*(round(each * 1e3, 4) for each in (fmean(waits), *percentiles)))

    @classmethod
    def expected(cls, queue: Md1) -> Waits:
        """Return the statistics that theory predicts."""
        at = (queue.mean_wait_s, *map(queue.wait_percentile_s, (50, 95, 99)))
        return cls(*(round(each * 1e3, 4) for each in at))


@dataclass(frozen=True, slots=True)
class TheoryComparison:
    """The measurement against theory. ``for_these_arrivals`` is what the drawn arrivals would have
    waited in the ideal queue: its difference from ``theory`` is chance, that of ``measured`` from
    it is the mesh, which is what is judged. ``alone_ms`` is the time of a request that waits for no
    other."""

    answers: int
    failed: int
    theory: Waits
    for_these_arrivals: Waits
    measured: Waits
    alone_ms: float
    alone_share: float
    generator: GeneratorResult

    @property
    def mean_error(self) -> float:
        """Return the error of the mean wait, as a share of what these arrivals wait."""
        return self._error(self.measured.mean, self.for_these_arrivals.mean)

    @property
    def p95_error(self) -> float:
        """Return the error of the 95th percentile, in the same way."""
        return self._error(self.measured.p95, self.for_these_arrivals.p95)

    def _error(self, measured_ms: float, ideal_ms: float) -> float:
        # At a low utilisation 95 in 100 wait for nothing, of which nothing is a share.
        return (measured_ms - ideal_ms) / max(ideal_ms, self.theory.mean)

    @property
    def agrees(self) -> bool:
        """Return whether both errors are within their bounds, and every request was answered."""
        within = abs(self.mean_error) <= MEAN_BOUND and abs(self.p95_error) <= P95_BOUND
        return within and not self.failed


async def compare(
    queue: Md1, num_answers: int, seed: int, directory: Path, report: Callable[[str], None]
) -> TheoryComparison:
    """Start a mesh and send it Poisson arrivals until about ``num_answers`` are measured.

    Raises StartError, and RequestFailed if the mesh can't be reached.
    """
    models = WaitingModels(target_ms=queue.service_s * 1e3, drafter_ms=1.0, acceptance=0.8)
    options = MeshOptions(models=models, drain_s=1.0)
    warm_up_s = warm_up_of(queue)
    async with LocalMesh(options, directory, report) as mesh:
        workload = Workload(
            arrivals=Poisson(queue.rate),
            conversations=Synthetic(prompt_tokens=ConstantLength(_PROMPT_TOKENS)),
            extent=RunLength(warm_up_s=warm_up_s, duration_s=num_answers / queue.rate),
            variations=(Variation(strategy="autoregressive"),),
            output_tokens=ConstantLength(1),
            seed=seed,
        )
        run = await conduct(RunPlan(workload=workload, door=MeshDoor((mesh.address,))))
    counts = run.result.counts
    seen = run.seen.observations
    measured = [each for each in seen if each.due_s >= warm_up_s]
    ideal = waits_s((each.due_s for each in seen), queue.service_s)
    every_alone = alone_among(seen)
    alone = [each for each in every_alone if each.due_s >= warm_up_s]
    # A short run at a high utilisation may have none but in the warm-up, whose first one is alone.
    alone_s = fmean(each.e2e_s for each in alone or every_alone)
    return TheoryComparison(
        answers=counts.answered,
        failed=counts.failed,
        theory=Waits.expected(queue),
        for_these_arrivals=Waits.of(list(ideal)[-len(measured) :]),
        measured=Waits.of([each.e2e_s - alone_s for each in measured]),
        alone_ms=round(alone_s * 1e3, 4),
        alone_share=round(len(alone) / len(measured), 4),
        generator=run.result.generator,
    )


def warm_up_of(queue: Md1) -> float:
    """Return the seconds before ``queue`` is measured."""
    relaxation_s = queue.service_s / (1 - queue.rho) ** 2
    return max(_LEAST_WARM_UP_S, _WARM_UP_RELAXATIONS * relaxation_s)


def alone_among(observations: Sequence[Observation]) -> list[Observation]:
    """Return the requests before which all earlier ones had ended, given in the order in which they
    were due."""
    found, last_end_s = [], 0.0
    for seen in observations:
        if seen.due_s >= last_end_s:
            found.append(seen)
        last_end_s = max(last_end_s, seen.ended_s)
    return found

"""``specmesh bench plan`` or ``python -m specmesh.bench.plan_check``: plans against real meshes.

Each plan, and the same with a verifier less, is started as processes whose models wait instead of
computing, and gets the load for which it was made.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console

from specmesh.bench.load.explained import explained
from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.local.mesh import LocalMesh, MeshOptions
from specmesh.cli.local.models import WaitingModels
from specmesh.cli.runner import run
from specmesh.load.runs.conduct import RunPlan, conduct
from specmesh.load.transports.mesh_transport import MeshDoor
from specmesh.load.transports.observation import Observation, RequestOutcome
from specmesh.load.workload.arrivals import Poisson
from specmesh.load.workload.conversations import Synthetic
from specmesh.load.workload.lengths import ConstantLength as FixedLength
from specmesh.load.workload.plan import RunLength, Workload
from specmesh.load.workload.variations import Variation
from specmesh.serving.process.typer_app import App
from specmesh.simulation.costs import MeshCosts
from specmesh.simulation.law import ForwardShape
from specmesh.simulation.models import AcceptanceRates
from specmesh.tools.kit.options import Json
from specmesh.tools.kit.tables import table_of
from specmesh.tools.plan.predict import MeshPrediction, Times
from specmesh.tools.plan.search import plan
from specmesh.tools.plan.setting import PlanSetting, default_objectives
from specmesh.tools.simulate.options import HopMs, Seed, require_drafting, strategy_names

app = App()

_STRATEGIES = ("autoregressive", "speculative")

_WARM_UP_S = 5.0
_PROMPT_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Replicated:
    """Waiting models with several replicas of the drafter."""

    models: WaitingModels
    num_drafters: int

    def verifier(self) -> Sequence[str]:
        """Return the arguments of a verifier."""
        return self.models.verifier()

    def drafters(self) -> Sequence[Sequence[str]]:
        """Return the arguments of each drafter."""
        return [*self.models.drafters()] * max(1, self.num_drafters)


@dataclass(frozen=True, slots=True)
class MeasuredMesh:
    """The experience of users of a real mesh. ``attained`` counts the ``failed`` answers as missing
    the objectives. ``orchestrator_ms`` is CPU time per verification."""

    answers: int
    failed: int
    ttft_ms: Times
    tpot_ms: Times
    e2e_ms: Times
    attained: float
    orchestrator_ms: float


@app.command()
def main(
    rate: Annotated[float, typer.Option(min=0.1, help="Requests per second.")] = 2.0,
    tokens: Annotated[int, typer.Option(min=2, help="Length of each answer.")] = 48,
    target_ms: Annotated[float, typer.Option(min=1, help="Time of a target forward.")] = 40.0,
    drafter_ms: Annotated[float, typer.Option(min=0.1, help="Time of a drafter forward.")] = 8.0,
    acceptance: Annotated[
        float, typer.Option(min=0, max=1, help="Acceptance rate of draft tokens.")
    ] = 0.8,
    heads_ms: Annotated[
        float | None,
        typer.Option(
            min=0.1, help="Time of a level of heads, which have the same acceptance rate."
        ),
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            callback=strategy_names,
            help="Strategy to check. May be repeated.",
            show_default=", ".join(_STRATEGIES),
        ),
    ] = None,
    hop_ms: HopMs = 0.5,
    duration: Annotated[float, typer.Option(min=1, help="Measured time in seconds.")] = 60.0,
    seed: Seed = 0,
    json_: Json = False,
) -> None:
    """Plan meshes, start them as planned and with a verifier less, and send both the load.

    The errors are those of the prediction, as shares of the measurement. A hop is half of the time
    of a verification besides the forward. Nothing else may run on the machine meanwhile.
    """
    console = Console(stderr=True, highlight=False)
    names = strategy or _STRATEGIES
    costs = MeshCosts.fixed(target_ms, drafter_ms, heads_ms, hop_ms)
    require_drafting(names, costs)
    setting = PlanSetting(
        costs=costs,
        rates=AcceptanceRates(acceptance),
        rate=rate,
        output=FixedLength(tokens),
        objectives=default_objectives(costs),
        orchestrator_ms=0.0,
        further_ms=0.0,
        seed=seed,
    )

    async def work() -> int:
        rows = await _rows(setting, names, duration, console)
        if json_:
            typer.echo(json.dumps(rows))
        else:
            _show(rows)
        return ExitStatus.OK

    run(explained(work()))


async def _rows(
    setting: PlanSetting, names: Sequence[str], duration_s: float, console: Console
) -> list[dict[str, Any]]:
    """Measure the plans of the strategies. Raises StartError."""
    return [
        _row(each, await _measure(setting, each, duration_s, console))
        for planned in (plan(setting, name) for name in names)
        for each in (planned.best, planned.fewer)
        if each is not None
    ]


async def _measure(
    setting: PlanSetting, prediction: MeshPrediction, duration_s: float, console: Console
) -> MeasuredMesh:
    """Measure a mesh as predicted. Raises StartError."""
    costs, one = setting.costs, ForwardShape()
    models = WaitingModels(
        target_ms=costs.target.ms(one),
        drafter_ms=costs.drafters[0].ms(one),
        acceptance=setting.rates.drafter,
        seed=setting.seed,
        heads_ms=None if costs.heads is None else costs.heads.ms(one),
        heads_depth=setting.heads_depth,
        heads_acceptance=setting.rates.drafter,
    )
    options = MeshOptions(
        models=Replicated(models, prediction.drafters),
        num_verifiers=prediction.verifiers,
        drain_s=1.0,
    )
    workload = Workload(
        arrivals=Poisson(setting.rate),
        conversations=Synthetic(prompt_tokens=FixedLength(_PROMPT_TOKENS)),
        extent=RunLength(warm_up_s=_WARM_UP_S, duration_s=duration_s, cool_down_s=_WARM_UP_S),
        variations=(Variation(strategy=prediction.strategy),),
        output_tokens=setting.output,
        seed=setting.seed,
    )
    with TemporaryDirectory(prefix="specmesh-") as directory:
        async with LocalMesh(options, Path(directory), console.print) as mesh:
            orchestrator = psutil.Process(mesh.pids["orchestrator"])
            before_s = _cpu_s(orchestrator)
            conducted = await conduct(RunPlan(workload=workload, door=MeshDoor((mesh.address,))))
            spent_s = _cpu_s(orchestrator) - before_s
    return _measured(setting, conducted.seen.observations, duration_s, spent_s)


def _measured(
    setting: PlanSetting, observations: Sequence[Observation], duration_s: float, spent_s: float
) -> MeasuredMesh:
    until_s = _WARM_UP_S + duration_s
    seen = [each for each in observations if _WARM_UP_S <= each.due_s < until_s]
    answered = [each for each in seen if each.outcome is RequestOutcome.ANSWERED]
    calls = sum(each.work.num_verify_calls for each in observations if each.work is not None)
    return MeasuredMesh(
        answers=len(seen),
        failed=len(seen) - len(answered),
        ttft_ms=Times.of([each.ttft_s for each in answered if each.ttft_s is not None]),
        tpot_ms=Times.of([each.tpot_s for each in answered if each.tpot_s is not None]),
        e2e_ms=Times.of([each.e2e_s for each in answered]),
        attained=round(sum(map(setting.objectives.met_by, seen)) / max(1, len(seen)), 4),
        orchestrator_ms=round(spent_s / max(1, calls) * 1e3, 3),
    )


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _row(prediction: MeshPrediction, measured: MeasuredMesh) -> dict[str, Any]:
    errors = {
        f"{name}_{kind}": round(_error(getattr(prediction, name), getattr(measured, name), kind), 3)
        for name in ("ttft_ms", "tpot_ms", "e2e_ms")
        for kind in ("p50", "p95")
    }
    return {"predicted": asdict(prediction), "measured": asdict(measured), "errors": errors}


def _error(predicted: Times, measured: Times, kind: str) -> float:
    return float(getattr(predicted, kind) / max(getattr(measured, kind), 1e-9) - 1)


def _show(rows: Sequence[dict[str, Any]]) -> None:
    table = table_of(
        "Predicted / measured",
        ((row["predicted"], row["measured"]) for row in rows),
        (
            ("strategy", lambda row: row[0]["strategy"]),
            ("verifiers", lambda row: str(row[0]["counts"]["verifiers"])),
            ("drafters", lambda row: str(row[0]["counts"]["drafters"])),
            (
                "TTFT p50 ms",
                lambda row: " / ".join(f"{each['ttft_ms']['p50']:.0f}" for each in row),
            ),
            (
                "TPOT p50 ms",
                lambda row: " / ".join(f"{each['tpot_ms']['p50']:.1f}" for each in row),
            ),
            (
                "TPOT p95 ms",
                lambda row: " / ".join(f"{each['tpot_ms']['p95']:.1f}" for each in row),
            ),
            ("e2e p50 ms", lambda row: " / ".join(f"{each['e2e_ms']['p50']:.0f}" for each in row)),
            ("within", lambda row: " / ".join(f"{each['attained']:.0%}" for each in row)),
            ("failed", lambda row: str(row[1]["failed"])),
            ("orchestrator ms", lambda row: f"{row[1]['orchestrator_ms']:.2f}"),
        ),
    )
    Console(width=140).print(table)


if __name__ == "__main__":
    app(prog_name="specmesh bench plan")

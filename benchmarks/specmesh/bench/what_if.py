"""``specmesh bench what-if``: predictions from traces against the measured effect of each
change."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from specmesh.cli.local.mesh import LocalMesh, MeshOptions
from specmesh.cli.local.models import WaitingModels
from specmesh.cli.runner import run
from specmesh.client import AsyncClient
from specmesh.orchestrator.strategies.options import StrategyOptions
from specmesh.serving.process.typer_app import App
from specmesh.simulation.replay.recorded import RecordedRequest, recorded
from specmesh.simulation.replay.what_if import (
    Alternative,
    lookahead,
    more_verifiers,
    quicker_drafter,
    what_if,
)
from specmesh.tools.kit.experiment import GREEDY, Experiment, Speculation
from specmesh.tools.kit.options import Json
from specmesh.tools.kit.tables import table_of
from specmesh.traces.receiver import TraceReceiver
from specmesh.traces.spans import by_trace
from specmesh.traces.trace import Trace

app = App()

_TARGET_MS, _DRAFTER_MS, _ACCEPTANCE = 40.0, 8.0, 0.8
_PROMPT_TOKENS = 16
_NUM_WARM_UP = 2
_DSI = Speculation("dsi")
_EIGHT = Speculation("speculative", StrategyOptions(lookahead=8))
_THREE = Speculation("speculative", StrategyOptions(lookahead=3))


@dataclass(frozen=True, slots=True)
class WhatIfSetting:
    """A mesh and the speculation of its answers."""

    speculation: Speculation
    num_verifiers: int = 2
    drafter_ms: float = _DRAFTER_MS


@dataclass(frozen=True, slots=True)
class Case:
    """A change, and the settings before and after it."""

    before: WhatIfSetting
    change: Alternative
    after: WhatIfSetting


CASES = (
    Case(WhatIfSetting(_DSI), more_verifiers(2), WhatIfSetting(_DSI, num_verifiers=4)),
    Case(WhatIfSetting(_EIGHT), lookahead(3), WhatIfSetting(_THREE)),
    Case(
        WhatIfSetting(_EIGHT), quicker_drafter(2), WhatIfSetting(_EIGHT, drafter_ms=_DRAFTER_MS / 2)
    ),
)


@dataclass(frozen=True, slots=True)
class CaseFigures:
    """Medians over the answers; errors are shares of the measured time."""

    strategy: str
    change: str
    before_s: float
    simulated_error: float
    """Error of the simulation of the unchanged answers, without sign."""
    predicted_s: float
    after_s: float
    error: float
    """Error of the prediction, without sign."""
    signed_error: float


@app.command()
def main(
    answers: Annotated[
        int, typer.Option(min=1, max=200, help="Number of answers in each setting.")
    ] = 10,
    tokens: Annotated[int, typer.Option(min=2, max=1000, help="Length of each answer.")] = 64,
    json_: Json = False,
) -> None:
    """Trace answers, predict from each trace how long it would have taken with one thing changed,
    and compare with the measured effect.

    The models wait instead of computing.
    """

    async def work() -> int:
        console = Console(stderr=True)
        measured: dict[WhatIfSetting, Sequence[RecordedRequest]] = {}
        settings = {each for case in CASES for each in (case.before, case.after)}
        for mesh in {(each.num_verifiers, each.drafter_ms) for each in settings}:
            on_it = [each for each in settings if (each.num_verifiers, each.drafter_ms) == mesh]
            console.print(f"{mesh[0]} verifiers, drafter {mesh[1]:g} ms ...", highlight=False)
            measured |= await _measure(on_it, answers, tokens)
        found = [figures(case, measured[case.before], measured[case.after]) for case in CASES]
        if json_:
            typer.echo(json.dumps({"answers": answers, "cases": [asdict(each) for each in found]}))
        else:
            Console().print(_table(found))
        return 0

    run(work())


def figures(
    case: Case, before: Sequence[RecordedRequest], after: Sequence[RecordedRequest]
) -> CaseFigures:
    """Compare what the traces of ``before`` predict with ``after``, answer by answer."""
    found = [what_if(each, (case.change,)) for each in before]
    predicted = [each.predictions[0].duration_s for each in found]
    errors = [guess / really.duration_s - 1 for guess, really in zip(predicted, after, strict=True)]
    return CaseFigures(
        strategy=case.before.speculation.strategy,
        change=case.change.name,
        before_s=median(each.measured_s for each in found),
        simulated_error=median(abs(each.error) for each in found),
        predicted_s=median(predicted),
        after_s=median(each.duration_s for each in after),
        error=median(map(abs, errors)),
        signed_error=median(errors),
    )


async def _measure(
    settings: Sequence[WhatIfSetting], num_answers: int, num_tokens: int
) -> Mapping[WhatIfSetting, Sequence[RecordedRequest]]:
    """Answer the same prompts in each of ``settings``, which share a mesh."""
    models = WaitingModels(
        target_ms=_TARGET_MS, drafter_ms=settings[0].drafter_ms, acceptance=_ACCEPTANCE
    )
    options = MeshOptions(models=models, num_verifiers=settings[0].num_verifiers, drain_s=1.0)
    experiment = Experiment(
        prompts=(), speculations=(), temperatures=(GREEDY,), num_tokens=num_tokens
    )
    async with TraceReceiver() as receiver:
        environment = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": receiver.endpoint}
        options = replace(options, environment=environment)
        directory = Path(mkdtemp(prefix="specmesh-"))
        async with (
            LocalMesh(options, directory, lambda _: None) as mesh,
            AsyncClient(mesh.address) as client,
        ):
            for number in range(_NUM_WARM_UP + num_answers):
                prompt = tuple(range(number, number + _PROMPT_TOKENS))
                for each in settings:
                    await experiment.ask(client, prompt, each.speculation, num_tokens=num_tokens)
        # The mesh is down, so all its spans have arrived.
        traces = sorted(map(Trace.of, by_trace(receiver.spans)), key=lambda t: t.root.start_ns)
    answers = [trace for trace in traces if trace.summary.strategy][_NUM_WARM_UP * len(settings) :]
    return {
        setting: [recorded(trace) for trace in answers[index :: len(settings)]]
        for index, setting in enumerate(settings)
    }


def _table(found: Sequence[CaseFigures]) -> Table:
    return table_of(
        "What if",
        found,
        (
            ("change", lambda each: f"{each.strategy}, {each.change}"),
            ("before", lambda each: f"{each.before_s:.3f}"),
            ("predicted", lambda each: f"{each.predicted_s:.3f}"),
            ("measured", lambda each: f"{each.after_s:.3f}"),
            ("error", lambda each: f"{each.error:.1%}"),
            ("unchanged", lambda each: f"{each.simulated_error:.1%}"),
        ),
        caption="median seconds; errors of the prediction, and of simulating the unchanged answer",
    )


if __name__ == "__main__":
    app(prog_name="specmesh bench what-if")

"""``specmesh simulate``: the papers' experiments, and a mesh of one's choice, in virtual time."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console
from rich.progress import track

from specmesh.bench.simulate import branch_figures, branch_tables, report
from specmesh.bench.simulate import modes as acceptance_modes
from specmesh.bench.simulate import table2 as table_2
from specmesh.bench.simulate.load import SimulatedLoad, run_load
from specmesh.bench.simulate.offline import Settings, grid, run_grid
from specmesh.bench.simulate.options import (
    accepted_counts,
    finite,
    grid_step,
    latency,
    output_folder,
    strategy_names,
    token_ids,
)
from specmesh.bench.simulate.parallel import spread
from specmesh.bench.simulate.speedups import cell_dict, summary
from specmesh.decoding.closed_forms import estimate_alpha
from specmesh.decoding.phi import Phi
from specmesh.orchestrator.simulation.mesh import MeshModel
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal

MAX_SEED = (1 << 63) - 1
MAX_TOKENS = 100_000
WIDTH = 120
"""Of tables that go to a file."""

app = typer.Typer(
    name="specmesh simulate",
    help="Run the mesh's strategies on a virtual clock.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Out = Annotated[
    Path | None, typer.Option(callback=output_folder, help="Folder for pictures and CSV files.")
]
Seed = Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Of texts and arrivals.")]
Workers = Annotated[int, typer.Option(min=1, help="Processes; all cores by default.")]
Tokens = Annotated[int, typer.Option(min=1, max=MAX_TOKENS, help="Of each answer.")]
HopMs = Annotated[float, typer.Option(min=0, callback=finite, help="One way between processes.")]

CORES = os.cpu_count() or 1

Item = TypeVar("Item")


@app.command("grid")
def offline_grid(
    step: Annotated[float, typer.Option(callback=grid_step, help="Of both axes.")] = 0.05,
    tokens: Tokens = 100,
    repeats: Annotated[int, typer.Option(min=1, help="Answers per cell.")] = 5,
    out: Out = None,
    workers: Workers = CORES,
    json_: Json = False,
) -> None:
    """DSI's offline study: SI, DSI and non-SI for every drafter (Figure 2)."""
    began = time.perf_counter()
    results = run_grid(step, Settings(tokens, repeats), workers)
    num_cells = sum(1 for _ in grid(step))
    cells = list(_tracked(results, num_cells, "cells"))
    seconds = time.perf_counter() - began
    rows = [cell_dict(cell) for cell in cells]
    files = []
    if out is not None:
        from specmesh.bench.simulate import plots

        files = [out / "dsi-offline.csv", out / "dsi-offline.png"]
        plots.write_csv(rows, files[0])
        plots.heat_maps(cells, tokens, files[1])
    found = {
        "step": step,
        "num_tokens": tokens,
        "repeats": repeats,
        "wall_s": seconds,
        "summary": summary(cells),
        "cells": rows,
        "files": list(map(str, files)),
    }
    _show(found, json_, report.grid)


@app.command("table2")
def dsi_table_2(
    tokens: Tokens = 50,
    repeats: Annotated[int, typer.Option(min=1, help="Seeds, from --seed on.")] = 30,
    seed: Seed = 0,
    prompt_tokens: Annotated[
        list[str] | None,
        typer.Option(help="Token ids like 1,2,3; given more than once, each for every seed."),
    ] = None,
    hop_ms: HopMs = 0.0,
    workers: Workers = CORES,
    json_: Json = False,
) -> None:
    """DSI's Table 2: ten pairs of models, each strategy at lookaheads 1, 5 and 10."""
    experiment = table_2.Table2Experiment(
        tokens,
        range(seed, seed + repeats),
        [token_ids(each) for each in prompt_tokens or ["0"]],
        hop_ms / 1e3,
    )
    work = partial(table_2.row_report, experiment=experiment)
    rows = _tracked(spread(work, table_2.ROWS, workers), len(table_2.ROWS), "rows")
    found = {
        "num_tokens": tokens,
        "seeds": list(experiment.seeds),
        "prompts": list(experiment.prompts),
        "hop_ms": hop_ms,
        "num_verifiers": table_2.SPECULATION_PARALLELISM,
        "runner_up": table_2.RUNNER_UP,
        "rows": list(rows),
    }
    _show(found, json_, report.table2)


@app.command()
def modes(
    target_ms: Annotated[float, typer.Option(min=1e-6, callback=finite)] = 1000.0,
    drafter_ms: Annotated[float, typer.Option(min=1e-6, callback=finite)] = 100.0,
    verifiers: Annotated[int, typer.Option(min=1, max=4096)] = 7,
    tokens: Tokens = 100,
    repeats: Annotated[int, typer.Option(min=1, help="Seeds, from --seed on.")] = 21,
    seed: Seed = 0,
    workers: Workers = CORES,
    json_: Json = False,
) -> None:
    """Every strategy in every acceptance mode, for drafters of chosen likeness."""
    setting = acceptance_modes.ModesSetting(
        *(target_ms / 1e3, drafter_ms / 1e3, verifiers, tokens, range(seed, seed + repeats))
    )
    results = acceptance_modes.run_modes(setting, workers)
    found = {
        "target_ms": target_ms,
        "drafter_ms": drafter_ms,
        "num_verifiers": verifiers,
        "num_tokens": tokens,
        "num_seeds": repeats,
        "rows": list(_tracked(results, len(acceptance_modes.rows()), "rows")),
    }
    _show(found, json_, report.modes)


@app.command()
def branches(
    tokens: Tokens = 1000,
    seed: Seed = 0,
    out: Out = None,
    workers: Workers = CORES,
    json_: Json = False,
) -> None:
    """Branch prediction's Figures 5-7 and 12, and its Tables 3 and 4."""
    curve = partial(branch_figures.points_of, num_tokens=tokens, seed=seed)
    curves = _tracked(
        spread(curve, branch_figures.ALPHAS, workers), len(branch_figures.ALPHAS), "curves"
    )
    points = [point for each in curves for point in each]
    explain = partial(branch_tables.explain, num_tokens=tokens, seed=seed)
    explained = [explain(row) for row in branch_tables.ROWS]
    pair = next(each for each in explained if each.published.is_figures_pair)
    exhaustive = list(branch_figures.exhaustive_points(pair.alpha, tokens, seed))
    found = {
        "num_tokens": tokens,
        "seed": seed,
        "least_n": branch_figures.least_n(),
        "figures_5_to_7": [asdict(point) for point in points],
        "largest_difference": branch_figures.largest_difference(points),
        "figure_12": {
            "alpha": pair.alpha,
            "points": [
                {**asdict(each), "compute_factor": each.compute_factor} for each in exhaustive
            ],
        },
        "tables_3_and_4": [each.as_dict() for each in explained],
        "shapes": branch_tables.shapes(explained),
    }
    files = []
    if out is not None:
        from specmesh.bench.simulate import plots

        files = [out / f"branch-{name}" for name in ("figures.png", "figures.csv", "tables.csv")]
        plots.throughput_curves(points, branch_figures.least_n(), files[0])
        plots.write_csv([asdict(point) for point in points], files[1])
        plots.write_csv([each.as_dict() for each in explained], files[2])
    _show({**found, "files": list(map(str, files))}, json_, report.branches)


@app.command()
def phi(
    counts: Annotated[
        str, typer.Argument(help="How often 0, 1, ... n draft tokens were accepted: 60,20,12,8,55")
    ],
    json_: Json = False,
) -> None:
    """Fit branch prediction's φ (Eq. 12) to observed runs ('specmesh bench strategies')."""
    observed = accepted_counts(counts)
    fitted = Phi.fit(observed)
    alpha = estimate_alpha(
        [k for k, count in enumerate(observed) for _ in range(count)], len(observed) - 1
    )
    found = {
        "counts": observed,
        **asdict(fitted),
        "goodness": fitted.goodness(observed),
        "probabilities": fitted.probabilities(len(observed) - 1).tolist(),
        "alpha": alpha,
        "iid_probabilities": Phi.iid(alpha).probabilities(len(observed) - 1).tolist(),
        "iid_goodness": Phi.iid(alpha).goodness(observed),
    }
    _show(found, json_, report.phi)


@app.command("run")
def run_mesh(
    target_ms: Annotated[
        float | None, typer.Option(callback=finite, help="Of one target forward.")
    ] = None,
    drafter_ms: Annotated[
        float | None, typer.Option(callback=finite, help="Of one drafter forward.")
    ] = None,
    target_histogram: Annotated[
        Path | None, typer.Option(help='JSON file instead: {"SECONDS": count}.')
    ] = None,
    drafter_histogram: Annotated[
        Path | None, typer.Option(help="The same, of the drafter.")
    ] = None,
    acceptance: Annotated[float, typer.Option(min=0, max=1, callback=finite)] = 0.8,
    runner_up: Annotated[
        float,
        typer.Option(
            min=0, max=1, callback=finite, help="P(second choice is right, if not first)."
        ),
    ] = 0.5,
    strategy: Annotated[
        list[str] | None, typer.Option(callback=strategy_names, help="May be repeated.")
    ] = None,
    verifiers: Annotated[int, typer.Option(min=1, max=4096)] = 1,
    lookahead: Annotated[
        int | None, typer.Option(min=1, max=4096, help="By default the strategy's choice.")
    ] = None,
    tokens: Tokens = 50,
    requests: Annotated[int, typer.Option(min=1, max=MAX_TOKENS)] = 1,
    rate: Annotated[
        float | None,
        typer.Option(callback=finite, help="Requests per second; all at once if unset."),
    ] = None,
    hop_ms: HopMs = 0.0,
    seed: Seed = 0,
    json_: Json = False,
) -> None:
    """What a mesh of one's choice would do: latency, throughput, waste, utilisation."""
    target = latency("target", target_ms, target_histogram)
    names = strategy or ["dsi"]
    needs_drafter = any(STRATEGIES[name].needs_drafter for name in names)
    given = drafter_ms is not None or drafter_histogram is not None
    drafters = (
        (latency("drafter", drafter_ms, drafter_histogram),) if needs_drafter or given else ()
    )
    if rate is not None and rate <= 0:
        raise typer.BadParameter("must be above 0", param_hint="--rate")
    model = MeshModel(target, drafters, verifiers, hop_ms / 1e3)
    found = {
        "num_verifiers": verifiers,
        "num_requests": requests,
        "strategies": {
            name: asdict(
                run_load(
                    SimulatedLoad(
                        *(name, Goal(tokens, lookahead=lookahead), requests, rate),
                        *(acceptance, runner_up, seed),
                    ),
                    model,
                )
            )
            for name in names
        },
    }
    _show(found, json_, report.load)


def _tracked(results: Iterable[Item], total: int, what: str) -> Iterable[Item]:
    console = Console(stderr=True)
    return track(results, what, total, console=console, disable=not console.is_terminal)


def _show(found: dict[str, object], as_json: bool, show: report.Show) -> None:
    if as_json:
        typer.echo(json.dumps(found))
    else:
        show(found, Console() if sys.stdout.isatty() else Console(width=WIDTH))


if __name__ == "__main__":
    app(prog_name="specmesh simulate")

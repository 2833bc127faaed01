"""The experiments of the DSI paper: its offline study and its Table 2."""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated

import typer

from specmesh.cli.output_files import check_writable, writing
from specmesh.tools.kit.options import Json
from specmesh.tools.kit.progress import tracked
from specmesh.tools.simulate import report
from specmesh.tools.simulate.options import (
    CORES,
    HopMs,
    Out,
    Repeats,
    Seed,
    Tokens,
    Workers,
    grid_step,
    token_ids,
)
from specmesh.tools.simulate.output import show
from specmesh.tools.simulate.papers import table2 as table_2
from specmesh.tools.simulate.papers.offline import Settings, grid, run_grid
from specmesh.tools.simulate.papers.speedups import cell_dict, summary
from specmesh.tools.simulate.parallel import spread


def offline_grid(
    step: Annotated[float, typer.Option(callback=grid_step, help="Step of both axes.")] = 0.05,
    tokens: Tokens = 100,
    repeats: Annotated[int, typer.Option(min=1, help="Answers per cell.")] = 5,
    out: Out = None,
    workers: Workers = CORES,
    json_: Json = False,
) -> None:
    """Repeat DSI's offline study: SI, DSI and non-SI for every drafter (Figure 2)."""
    files = [] if out is None else [out / "dsi-offline.csv", out / "dsi-offline.png"]
    for file in files:
        check_writable(file, "--out")
    began = time.perf_counter()
    results = run_grid(step, Settings(tokens, repeats), workers)
    num_cells = sum(1 for _ in grid(step))
    cells = list(tracked(results, num_cells, "cells"))
    seconds = time.perf_counter() - began
    rows = [cell_dict(cell) for cell in cells]
    found = {
        "step": step,
        "num_tokens": tokens,
        "repeats": repeats,
        "wall_s": seconds,
        "summary": summary(cells),
        "cells": rows,
        "files": list(map(str, files)),
    }
    show(found, json_, report.grid)
    if files:
        from specmesh.tools.simulate.papers import plots

        with writing():
            plots.write_csv(rows, files[0])
            plots.heat_maps(cells, tokens, files[1])


def dsi_table_2(
    tokens: Tokens = 50,
    repeats: Repeats = 30,
    seed: Seed = 0,
    prompt_tokens: Annotated[
        list[str] | None,
        typer.Option(help="Token ids like 1,2,3. May be repeated; each is run with every seed."),
    ] = None,
    hop_ms: HopMs = 0.0,
    workers: Workers = CORES,
    json_: Json = False,
) -> None:
    """Repeat DSI's Table 2: ten pairs of models, each strategy at lookaheads 1, 5 and 10."""
    experiment = table_2.Table2Experiment(
        tokens,
        range(seed, seed + repeats),
        [token_ids(each) for each in prompt_tokens or ["0"]],
        hop_ms / 1e3,
    )
    work = partial(table_2.row_report, experiment=experiment)
    rows = tracked(spread(work, table_2.ROWS, workers), len(table_2.ROWS), "rows")
    found = {
        "num_tokens": tokens,
        "seeds": list(experiment.seeds),
        "prompts": list(experiment.prompts),
        "hop_ms": hop_ms,
        "num_verifiers": table_2.SPECULATION_PARALLELISM,
        "runner_up": table_2.RUNNER_UP,
        "rows": list(rows),
    }
    show(found, json_, report.table2)

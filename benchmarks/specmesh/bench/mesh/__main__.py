"""``specmesh bench mesh`` or ``python -m specmesh.bench.mesh``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer
from rich.console import Console

from specmesh.bench.mesh.measure import MeshPlan, measure_row
from specmesh.bench.mesh.report import table
from specmesh.bench.mesh.simulated import simulate_row
from specmesh.bench.mesh.summary import RowSummary, summarise
from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.runner import run
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.options import Json
from specmesh.tools.simulate.papers.table2 import ROWS, PublishedRow

app = App()

_PROMPT_TOKENS = 16


@app.command()
def main(
    row: Annotated[
        list[int] | None, typer.Option(min=1, max=10, help="Rows of the table.", show_default="all")
    ] = None,
    prompts: Annotated[
        int, typer.Option(min=1, max=200, help="Number of answers per strategy.")
    ] = 2,
    repeats: Annotated[
        int,
        typer.Option(
            min=0, max=100, help="Additional runs of the best setting; the fastest counts."
        ),
    ] = 2,
    tokens: Annotated[int, typer.Option(min=2, max=1000, help="Length of each answer.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulated target.")] = 0,
    json_: Json = False,
) -> None:
    """Repeat DSI's Table 2 on real processes whose models wait instead of computing.

    Exits with 1 if a strategy changes the text.
    """
    console = Console(stderr=True)
    plan = MeshPlan(
        prompts=[tuple(range(number, number + _PROMPT_TOKENS)) for number in range(prompts)],
        num_tokens=tokens,
        num_repeats=repeats,
        seed=seed,
    )

    async def work() -> int:
        chosen = ROWS if row is None else [ROWS[number - 1] for number in row]
        summaries = [await _one_row(each, plan, console) for each in chosen]
        if json_:
            typer.echo(json.dumps({"rows": [asdict(each) for each in summaries]}))
        else:
            Console().print(table(summaries))
        return 0 if all(each.identical for each in summaries) else ExitStatus.FAILED

    run(work())


async def _one_row(row: PublishedRow, plan: MeshPlan, console: Console) -> RowSummary:
    console.print(f"{row.target}, {row.dataset} ...", end=" ", highlight=False)
    expected = simulate_row(row, plan.seed, plan.prompts, plan.num_tokens)
    directory = Path(mkdtemp(prefix="specmesh-"))
    summary = summarise(expected, await measure_row(expected, plan, directory, console.print))
    console.print(f"DSI {summary.dsi_s:.3f} s, tax {summary.mesh_tax:.3f}", highlight=False)
    return summary


if __name__ == "__main__":
    app(prog_name="specmesh bench mesh")

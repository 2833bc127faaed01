"""``specmesh plan`` or ``python -m specmesh.tools.plan``."""

from __future__ import annotations

import functools

import typer

from specmesh.cli.exit_status import ExitStatus
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.options import Json
from specmesh.tools.kit.progress import tracked
from specmesh.tools.plan.options import PlanOptions
from specmesh.tools.plan.report import as_json, table
from specmesh.tools.plan.search import plan
from specmesh.tools.simulate.options import CORES, Workers
from specmesh.tools.simulate.output import show
from specmesh.tools.simulate.parallel import spread

app = App()


@app.command()
def main(*, asked: PlanOptions, workers: Workers = CORES, json_: Json = False) -> None:
    """Find how many verifiers and drafters a load needs, by simulation.

    For each strategy it prints the smallest mesh that meets the objectives with stable queues, and
    why one verifier less is not enough. The simulation runs the real strategies on a virtual clock,
    against replicas that serve calls first come, first served, and have a machine each. Exits with
    1 if no mesh meets the objectives.
    """
    names, setting = asked.strategies, asked.setting()
    planning = spread(functools.partial(plan, setting), names, min(workers, len(names)))
    planned = list(tracked(planning, len(names), "strategies"))
    cost = asked.drafter_cost
    found = as_json(setting, planned, cost)
    show(found, json_, lambda _, console: console.print(table(setting, planned, cost)))
    if all(each.best is None for each in planned):
        raise typer.Exit(ExitStatus.FAILED)


if __name__ == "__main__":
    app(prog_name="specmesh plan")

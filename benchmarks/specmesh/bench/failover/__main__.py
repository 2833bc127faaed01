"""``specmesh bench failover`` or ``python -m specmesh.bench.failover``."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console

from specmesh.bench.failover.report import FailoverOutcome, table
from specmesh.bench.failover.run import FailoverPlan, PrimaryLoss, measure
from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.runner import run
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.options import Json

app = App()


@app.command()
def main(
    loss: Annotated[
        list[PrimaryLoss] | None,
        typer.Option(help="Way to lose the primary. May be repeated.", show_default="both"),
    ] = None,
    streams: Annotated[int, typer.Option(min=2, help="Number of concurrent answers.")] = 20,
    tokens: Annotated[
        int, typer.Option(min=1, help="Tokens of each answer after the recovery.")
    ] = 20,
    down_after_ms: Annotated[
        int, typer.Option(min=100, help="Silence after which Sentinel considers a server down.")
    ] = 500,
    json_: Json = False,
) -> None:
    """Lose the primary of a Redis with Sentinels while answers stream, and check every token.

    There are two orchestrators over a simulated target, a primary, two replicas and three
    Sentinels. Once streams are stored again, an orchestrator is killed, and its streams continue
    from what the new primary holds. Exits with 1 if an answer is wrong or failed, or the store
    lacks tokens that readers were told are stored.
    """
    console = Console(stderr=True, highlight=False)

    async def work() -> int:
        outcomes: list[FailoverOutcome] = []
        with ExitStack() as stack:
            directory = Path(stack.enter_context(TemporaryDirectory(prefix="specmesh-")))
            for each in loss or list(PrimaryLoss):
                plan = FailoverPlan(each, streams, tokens, down_after_ms)
                own = directory / each
                own.mkdir()
                outcomes.append(await measure(plan, own, console.print))
                for sentence in (*outcomes[-1].failed, *outcomes[-1].lost):
                    console.print(sentence, markup=False)
        if json_:
            typer.echo(json.dumps([asdict(each) for each in outcomes]))
        else:
            Console().print(table(outcomes))
        lossless = all(each.is_lossless for each in outcomes)
        return ExitStatus.OK if lossless else ExitStatus.FAILED

    run(work())


if __name__ == "__main__":
    app(prog_name="specmesh bench failover")

"""``specmesh bench chaos`` or ``python -m specmesh.bench.chaos``."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console

from specmesh.bench.chaos.judging.pairs import ShippedPair, WaitingPair
from specmesh.bench.chaos.report import as_json, bad, show, timeline
from specmesh.bench.chaos.run import Chaos, ChaosPlan
from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.runner import run, until_signalled
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.options import MAX_SEED, Json

app = App()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosOptions:
    """The extent of the faults and the load, and the models."""

    minutes: Annotated[float, typer.Option(min=0.1, help="Duration of the faults.")] = 5.0
    seed: Annotated[
        int,
        typer.Option(min=0, max=MAX_SEED, help="Seed of faults, requests and simulated models."),
    ] = 0
    streams: Annotated[int, typer.Option(min=1, help="Number of concurrent answers.")] = 8
    tokens: Annotated[int, typer.Option(min=1, help="Length of the longest answer.")] = 600
    shipped: Annotated[
        bool, typer.Option("--shipped", help="Serve the shipped pair instead of simulated models.")
    ] = False

    @property
    def plan(self) -> ChaosPlan:
        """The plan of the run."""
        return ChaosPlan(
            duration_s=self.minutes * 60,
            streams=self.streams,
            seed=self.seed,
            pair=ShippedPair() if self.shipped else WaitingPair(self.seed),
            longest=self.tokens,
        )


@app.command()
def main(
    *,
    given: ChaosOptions,
    keep: Annotated[
        Path | None,
        typer.Option(help="New folder to keep logs and timeline.json in.", show_default="none"),
    ] = None,
    json_: Json = False,
) -> None:
    """Kill, stop, slow and cut off the processes of a mesh at random while answers stream.

    The mesh has two orchestrators, three verifiers (the second without heads), two drafters, two
    confidence services and Redis, which persists its data in the first half of the run and loses it
    on exit in the second. At most one orchestrator and two verifiers are unreachable at a time,
    Redis for a few seconds. Exits with 1 if a token was lost, doubled or changed, or an answer
    failed.

    The JSON has: faults (number that struck; faults_by_kind has each), finished, cancelled (by
    their readers), exact (finished ones equal to the target's own text, where that is unique),
    agreed (equal to what the store held then), lost, doubled and changed (answers, also broken
    ones, with tokens that are missing, came twice, or differ from the target or the store), failed
    (answers by error class and reason; stuck: did not end long after the last fault), resumed
    (finished ones that were resumed), longest_pause_s (longest wait for tokens of a finished
    answer's reader, from the request on), proxy_late_s (longest delay of the links' proxy: seconds
    of it mean that the machine was too busy for a verdict), findings (everything that is wrong,
    with the last faults before it).
    """
    console = Console(stderr=True)

    async def work() -> int:
        with ExitStack() as stack:
            directory = keep or Path(stack.enter_context(TemporaryDirectory(prefix="specmesh-")))
            chaos = Chaos(
                given.plan,
                directory,
                lambda line: console.print(line, highlight=False, markup=False),
            )
            status = await until_signalled(chaos.run(), chaos.kill)
            figures = as_json(given.seed, chaos.phases)
            if keep is not None:
                (keep / "timeline.json").write_text(json.dumps(timeline(chaos.phases)))
        if json_:
            typer.echo(json.dumps(figures))
        else:
            show(figures, Console())
        found = any(bad(each) for phase in chaos.phases for each in phase.judged)
        return status or (ExitStatus.FAILED if found else 0)

    run(work())


if __name__ == "__main__":
    app(prog_name="specmesh bench chaos")

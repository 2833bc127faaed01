"""``specmesh bench chaos`` or ``python -m specmesh.bench.chaos``."""

from __future__ import annotations

import json
from contextlib import ExitStack
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


@app.command()
def main(
    minutes: Annotated[float, typer.Option(min=0.1, help="How long faults go on.")] = 5.0,
    seed: Annotated[
        int,
        typer.Option(
            min=0, max=MAX_SEED, help="Of faults, requests, and what simulated models say."
        ),
    ] = 0,
    streams: Annotated[int, typer.Option(min=1, help="Answers at once.")] = 8,
    tokens: Annotated[int, typer.Option(min=1, help="Length of the longest answer.")] = 600,
    shipped: Annotated[
        bool, typer.Option("--shipped", help="Serve the shipped pair, not models that wait.")
    ] = False,
    keep: Annotated[
        Path | None,
        typer.Option(help="New folder for logs and timeline.json.", show_default="none"),
    ] = None,
    json_: Json = False,
) -> None:
    """Kill, stop, slow and cut off the processes of a mesh at random while answers stream.

    Two orchestrators, three verifiers, of which the second has no heads, two drafters, two
    confidence services and Redis, which keeps what it holds half of the time and forgets it when
    it ends for the other half. At most one orchestrator and two verifiers are out of reach at
    once, Redis for a few seconds. Exits with 1 if a token was lost, doubled or changed, or an
    answer failed.

    The JSON has: faults (how many struck; faults_by_kind has each), finished, cancelled (by
    their readers), exact (finished ones equal to the target's own text, where there is but
    one), agreed (equal to what the store held then), lost, doubled and changed (answers, also
    broken ones, of whose tokens some are missing, came twice, or are not what the target says
    or the store holds), failed (answers by error class and reason; stuck: no end long after the
    last fault), resumed (finished ones that were carried on), longest_pause_s (in which a
    finished answer's reader waited for tokens, from the request on), proxy_late_s (the longest
    that the links' proxy took to answer: seconds of it mean that the machine is too busy to
    tell), findings (whatever is wrong, with the last faults before it).
    """
    console = Console(stderr=True)

    async def work() -> int:
        with ExitStack() as stack:
            directory = keep or Path(stack.enter_context(TemporaryDirectory(prefix="specmesh-")))
            plan = ChaosPlan(
                duration_s=minutes * 60,
                streams=streams,
                seed=seed,
                pair=ShippedPair() if shipped else WaitingPair(seed),
                longest=tokens,
            )
            chaos = Chaos(
                plan,
                directory,
                lambda line: console.print(line, highlight=False, markup=False),
            )
            status = await until_signalled(chaos.run(), chaos.kill)
            figures = as_json(seed, chaos.phases)
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

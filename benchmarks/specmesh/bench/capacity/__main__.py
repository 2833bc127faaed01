"""``specmesh bench capacity`` or ``python -m specmesh.bench.capacity``."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer
from rich.console import Console

from specmesh.bench.capacity.cells import CapacityGrid, measure
from specmesh.bench.capacity.placement import Role, plan_cores
from specmesh.bench.capacity.report import OFF, as_json, tables
from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.local.cores import available
from specmesh.cli.runner import run
from specmesh.orchestrator.requests.chunk_intervals import LONGEST_INTERVAL_MS
from specmesh.orchestrator.strategies import LOSSLESS, STRATEGIES
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.experiment import AUTOREGRESSIVE, SPECULATIVE
from specmesh.tools.kit.options import Json, Tokens
from specmesh.tools.kit.progress import progress

app = App()

STREAMS = (1, 8, 64, 256)
USUAL_STRATEGIES = (AUTOREGRESSIVE, SPECULATIVE)
KNOWN_STRATEGIES = tuple(name for name in LOSSLESS if not STRATEGIES[name].needs_heads)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityOptions:
    """The load and the mesh."""

    streams: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            max=1024,
            help="Number of concurrent streams. May be repeated.",
            show_default=", ".join(map(str, STREAMS)),
        ),
    ] = None
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            help="Strategy. May be repeated.", show_default=" and ".join(USUAL_STRATEGIES)
        ),
    ] = None
    tracing: Annotated[
        list[str] | None,
        typer.Option(
            help="Share of answers that is traced: off, or up to 1. May be repeated.",
            show_default=OFF,
        ),
    ] = None
    workers: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            max=64,
            help="Number of orchestrator processes behind one port. May be repeated.",
            show_default="1",
        ),
    ] = None
    tokens: Tokens = 64
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each cell; medians count.")] = 3
    acceptance: Annotated[
        float, typer.Option(min=0, max=1, help="Rate at which draft tokens are right.")
    ] = 0.8
    gateway: Annotated[
        bool, typer.Option("--gateway", help="Read the streams through a gateway, over HTTP.")
    ] = False
    chunk_interval: Annotated[
        int,
        typer.Option(
            min=0,
            max=LONGEST_INTERVAL_MS,
            help="Shortest time between two chunks of an answer, in milliseconds.",
        ),
    ] = 0
    role: Annotated[
        Role,
        typer.Option(
            help="Role that has a core for itself, if there are two. gateway implies --gateway."
        ),
    ] = Role.ORCHESTRATOR

    def grid(self) -> CapacityGrid:
        """Return the cells to measure. Raises BadParameter."""
        through_gateway = self.gateway or self.role is Role.GATEWAY
        if through_gateway and max(self.workers or (1,)) > 1:
            raise typer.BadParameter(
                "a gateway has one connection, which leads to one worker: ask for 1, or for no "
                "gateway",
                param_hint="--workers",
            )
        return CapacityGrid(
            strategies=[_known(each) for each in dict.fromkeys(self.strategy or USUAL_STRATEGIES)],
            streams=sorted(set(self.streams or STREAMS)),
            tracing=[_share(each) for each in dict.fromkeys(self.tracing or (OFF,))],
            workers=sorted(set(self.workers or (1,))),
            tokens=self.tokens,
            rounds=self.rounds,
            acceptance=self.acceptance,
            through_gateway=through_gateway,
            chunk_interval_ms=self.chunk_interval,
        )


@app.command()
def main(*, asked: CapacityOptions, json_: Json = False) -> None:
    """Measure what the mesh itself costs per token, with models that answer at once.

    Real processes with Redis and metrics answer concurrent streams, as many at once as the mesh
    itself decides. A bare grpc.aio relay takes turns with them and passes on as many messages. The
    default takes some five minutes on two cores. Exits with 1 if an answer fails.
    """
    grid = asked.grid()
    console = Console(stderr=True, highlight=False)

    async def work() -> int:
        directory = Path(mkdtemp(prefix="specmesh-"))
        with progress("rounds", grid.num_rounds, console) as advance:
            cores = plan_cores(available(), asked.role, grid.roles)
            cells = await measure(grid, cores, directory, console.print, advance)
        if json_:
            typer.echo(json.dumps(as_json(cells, asked.role)))
        else:
            for table in tables(cells):
                Console().print(table)
        return ExitStatus.FAILED if any(each.failures for each in cells) else ExitStatus.OK

    run(work())


def _known(strategy: str) -> str:
    if strategy not in KNOWN_STRATEGIES:
        known = ", ".join(KNOWN_STRATEGIES)
        raise typer.BadParameter(f"{strategy!r} is not one of: {known}", param_hint="--strategy")
    return strategy


def _share(text: str) -> float:
    """Return the share of answers that ``text`` asks to trace."""
    with suppress(ValueError):
        share = 0.0 if text == OFF else float(text)
        if 0 <= share <= 1:
            return share
    raise typer.BadParameter(f"{text!r} is not 'off' or from 0 to 1", param_hint="--tracing")


if __name__ == "__main__":
    app(prog_name="specmesh bench capacity")

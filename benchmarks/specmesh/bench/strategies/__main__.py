"""``specmesh bench strategies`` or ``python -m specmesh.bench.strategies``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer
from rich.console import Console

from specmesh.bench.strategies.bench import Bench
from specmesh.bench.strategies.measure import (
    AUTOREGRESSIVE,
    BRANCH_PREDICTION,
    SEED,
    STRATEGIES,
    TEMPERATURES,
    Experiment,
    Speculation,
)
from specmesh.cli import shipped
from specmesh.cli.local.mesh import MeshOptions
from specmesh.cli.runner import run, until_signalled
from specmesh.cli.up import DrafterModels, RedisUrl, TargetModel, Threads, real_models

_MAX_UINT32 = 2**32 - 1
_MAX_UINT64 = 2**64 - 1

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    target: TargetModel = None,
    drafter: DrafterModels = None,
    prompts: Annotated[
        Path | None,
        typer.Option(help="JSON list of objects with a 'text'.", show_default="shipped"),
    ] = None,
    num_prompts: Annotated[int, typer.Option(min=1, help="How many of them.")] = 20,
    tokens: Annotated[int, typer.Option(min=8, help="Length of each answer.")] = 128,
    verifiers: Annotated[int, typer.Option(min=1, help="Replicas of the target.")] = 1,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            help=f"One of {', '.join(STRATEGIES)}; several times for several. {AUTOREGRESSIVE} "
            "is always among them.",
            show_default="all",
        ),
    ] = None,
    lookahead: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STRATEGY=N",
            help="Draft tokens that a verification covers.",
            show_default="what suits the strategy",
        ),
    ] = None,
    branches: Annotated[
        int | None,
        typer.Option(
            min=1, max=_MAX_UINT32, help=f"Outcomes that {BRANCH_PREDICTION} drafts on meanwhile."
        ),
    ] = None,
    predictor: Annotated[
        str, typer.Option(help=f"What ranks those outcomes for {BRANCH_PREDICTION}.")
    ] = "",
    temperature: Annotated[
        list[float] | None,
        typer.Option(min=0, help="Several times for several.", show_default="0 and 0.8"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=_MAX_UINT64, help="Of the sampling.")] = SEED,
    threads: Threads = 1,
    redis_url: RedisUrl = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run every strategy on the same prompts: speed, compute spent, whether the text is the same.

    Exits with 1 if it is not. In the JSON, "strategies" is the first temperature.
    """
    speculations = _speculations(strategy or STRATEGIES, lookahead or (), branches, predictor)

    async def work() -> int:
        models = real_models(target, drafter, threads)
        bench = Bench(
            options=MeshOptions(
                models=models,
                num_verifiers=verifiers,
                threads=threads,
                redis_url=redis_url,
                drain_s=1.0,
            ),
            models=models,
            experiment=Experiment(
                prompts=shipped.read_prompts(prompts)[:num_prompts],
                speculations=speculations,
                temperatures=tuple(dict.fromkeys(temperature or TEMPERATURES)),
                num_tokens=tokens,
                seed=seed,
            ),
            directory=Path(mkdtemp(prefix="specmesh-")),
            console=Console(stderr=json_),
        )
        status = await until_signalled(bench.run(), bench.kill)
        if json_ and bench.summary is not None:
            typer.echo(json.dumps(bench.summary))
        return status

    run(work())


def _speculations(
    strategies: Sequence[str], lookaheads: Sequence[str], branches: int | None, predictor: str
) -> tuple[Speculation, ...]:
    """What to run, the yardstick first. Raises BadParameter."""
    lookahead_of = dict(map(_lookahead, lookaheads))
    _check_known(strategies, "--strategy")
    _check_known(lookahead_of, "--lookahead")
    return tuple(
        Speculation(
            name,
            lookahead=lookahead_of.get(name),
            num_branches=branches if name == BRANCH_PREDICTION else None,
            predictor=predictor if name == BRANCH_PREDICTION else "",
        )
        for name in dict.fromkeys((AUTOREGRESSIVE, *strategies))
    )


def _check_known(names: Sequence[str] | Mapping[str, int], option: str) -> None:
    for name in names:
        if name not in STRATEGIES:
            raise typer.BadParameter(
                f"{name!r} is none of {', '.join(STRATEGIES)}", param_hint=option
            )


def _lookahead(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not number.isdecimal() or not int(number):
        raise typer.BadParameter(f"{text!r} is not STRATEGY=N", param_hint="--lookahead")
    return name, int(number)


if __name__ == "__main__":
    app(prog_name="specmesh bench strategies")

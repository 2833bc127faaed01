"""``specmesh bench strategies`` or ``python -m specmesh.bench.strategies``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from specmesh.bench.kit.bench import Surroundings, conduct
from specmesh.bench.kit.experiment import (
    AUTOREGRESSIVE,
    BRANCH_PREDICTION,
    SEED,
    TEMPERATURES,
    Experiment,
    Speculation,
)
from specmesh.bench.kit.options import (
    Json,
    NumPrompts,
    PromptsFile,
    Seed,
    Temperatures,
    Tokens,
    Verifiers,
)
from specmesh.bench.kit.prompts import read_prompts
from specmesh.bench.strategies.bench import StrategiesBench
from specmesh.cli.local.mesh import MeshOptions
from specmesh.cli.up import DrafterModels, RedisUrl, TargetModel, Threads, real_models
from specmesh.orchestrator.strategies import LOSSLESS

_MAX_UINT32 = 2**32 - 1

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    target: TargetModel = None,
    drafter: DrafterModels = None,
    prompts: PromptsFile = None,
    num_prompts: NumPrompts = 20,
    tokens: Tokens = 128,
    verifiers: Verifiers = 1,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            help=f"One of {', '.join(LOSSLESS)}; several times for several. {AUTOREGRESSIVE} "
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
    temperature: Temperatures = None,
    seed: Seed = SEED,
    threads: Threads = 1,
    redis_url: RedisUrl = None,
    json_: Json = False,
) -> None:
    """Run every strategy on the same prompts: speed, compute spent, whether the text is the same.

    Exits with 1 if it is not. In the JSON, "strategies" is the first temperature.
    """
    speculations = _speculations(strategy or LOSSLESS, lookahead or (), branches, predictor)

    def make(surroundings: Surroundings) -> StrategiesBench:
        options = MeshOptions(
            models=real_models(target, drafter, threads),
            num_verifiers=verifiers,
            threads=threads,
            redis_url=redis_url,
            drain_s=1.0,
        )
        experiment = Experiment(
            prompts=read_prompts(prompts)[:num_prompts],
            speculations=speculations,
            temperatures=tuple(dict.fromkeys(temperature or TEMPERATURES)),
            num_tokens=tokens,
            seed=seed,
        )
        return StrategiesBench(experiment, options, surroundings)

    conduct(make, as_json=json_)


def _speculations(
    strategies: Sequence[str], lookaheads: Sequence[str], branches: int | None, predictor: str
) -> tuple[Speculation, ...]:
    """What to run, autoregressive decoding first. Raises BadParameter."""
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
        if name not in LOSSLESS:
            raise typer.BadParameter(
                f"{name!r} is none of {', '.join(LOSSLESS)}", param_hint=option
            )


def _lookahead(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not number.isdecimal() or not int(number):
        raise typer.BadParameter(f"{text!r} is not STRATEGY=N", param_hint="--lookahead")
    return name, int(number)


if __name__ == "__main__":
    app(prog_name="specmesh bench strategies")

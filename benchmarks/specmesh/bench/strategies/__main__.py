"""``specmesh bench strategies`` or ``python -m specmesh.bench.strategies``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from specmesh.bench.strategies.bench import StrategiesBench
from specmesh.cli.local.mesh import MeshOptions
from specmesh.cli.local.model_options import HeadsFolder, PairOptions
from specmesh.cli.local.options import RedisUrl, Threads
from specmesh.orchestrator.strategies import LOSSLESS
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.bench import Surroundings, conduct
from specmesh.tools.kit.experiment import (
    AUTOREGRESSIVE,
    Speculation,
    lossless,
)
from specmesh.tools.kit.experiment_options import ExperimentOptions
from specmesh.tools.kit.options import Json, Verifiers
from specmesh.tools.kit.strategy_options import GivenOptions, read_options

app = App()


@app.command()
def main(
    *,
    pair: PairOptions,
    heads: HeadsFolder = None,
    asked: ExperimentOptions,
    verifiers: Verifiers = 1,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            help=f"One of {', '.join(LOSSLESS)}. May be repeated; {AUTOREGRESSIVE} "
            "is always included.",
            show_default="all, those that need heads only with heads",
        ),
    ] = None,
    option: GivenOptions = None,
    threads: Threads = 1,
    redis_url: RedisUrl = None,
    json_: Json = False,
) -> None:
    """Compare the speed, compute and text of every strategy on the same prompts.

    Exits with 1 if a text differs. In the JSON, "strategies" is the first temperature.
    """
    speculations = _speculations(strategy or LOSSLESS, option or ())

    def make(surroundings: Surroundings) -> StrategiesBench:
        models = pair.real_models(threads, heads)
        able = (AUTOREGRESSIVE, *(strategy or lossless(models)))
        options = MeshOptions(
            models=models,
            num_verifiers=verifiers,
            threads=threads,
            redis_url=redis_url,
            drain_s=1.0,
        )
        experiment = asked.experiment(tuple(each for each in speculations if each.strategy in able))
        return StrategiesBench(experiment, options, surroundings)

    conduct(make, as_json=json_)


def _speculations(strategies: Sequence[str], given: Sequence[str]) -> tuple[Speculation, ...]:
    """Return the speculations to run, autoregressive decoding first. Raises BadParameter."""
    for name in strategies:
        if name not in LOSSLESS:
            raise typer.BadParameter(
                f"{name!r} is not one of {', '.join(LOSSLESS)}", param_hint="--strategy"
            )
    names = tuple(dict.fromkeys((AUTOREGRESSIVE, *strategies)))
    options = read_options(names, given)
    return tuple(Speculation(name, options[name]) for name in names)


if __name__ == "__main__":
    app(prog_name="specmesh bench strategies")

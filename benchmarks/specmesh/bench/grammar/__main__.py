"""``specmesh bench grammar`` or ``python -m specmesh.bench.grammar``."""

from __future__ import annotations

from typing import Annotated

import typer

from specmesh.bench.grammar.answers import SchemaRuns
from specmesh.bench.grammar.bench import GrammarBench
from specmesh.bench.grammar.schemas import schemas
from specmesh.cli.local.checks import check_strategy
from specmesh.cli.local.mesh import MeshOptions
from specmesh.cli.local.model_options import PairOptions
from specmesh.cli.local.options import RedisUrl, Threads
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.bench import Surroundings, conduct
from specmesh.tools.kit.experiment import AUTOREGRESSIVE, SPECULATIVE, TEMPERATURES
from specmesh.tools.kit.options import Json, Temperatures, Tokens
from specmesh.tools.kit.prompts import read_prompts

ENTRIES = (4_096, 151_936)

app = App()


def _other_strategy(name: str) -> str:
    """Refuse a strategy that does not exist, and the one with which all are compared."""
    if name == AUTOREGRESSIVE:
        raise typer.BadParameter(f"{name!r} is what the strategy is compared with")
    return check_strategy(name)


@app.command()
def main(
    *,
    pair: PairOptions,
    number: Annotated[int, typer.Option("--schemas", min=1, help="Number of JSON Schemas.")] = 40,
    strategy: Annotated[
        str, typer.Option(help="Strategy to compare.", callback=_other_strategy)
    ] = SPECULATIVE,
    temperature: Temperatures = None,
    tokens: Tokens = 160,
    entries: Annotated[
        list[int] | None,
        typer.Option(
            min=300,
            help="Size of a made-up vocabulary for the times of masks. May be repeated.",
            show_default=", ".join(map(str, ENTRIES)),
        ),
    ] = None,
    threads: Threads = 1,
    redis_url: RedisUrl = None,
    json_: Json = False,
) -> None:
    """Answer JSON Schemas on a mesh with and without speculation, check every answer, and time the
    masks.

    Exits with 1 if an answer that ended by itself is not valid, or if speculation changes a text.
    """

    def make(surroundings: Surroundings) -> GrammarBench:
        models = pair.real_models(threads)
        options = MeshOptions(models=models, threads=threads, redis_url=redis_url, drain_s=1.0)
        runs = SchemaRuns(
            schemas=schemas(number),
            prompts=read_prompts(None),
            strategy=strategy,
            temperatures=temperature or TEMPERATURES,
            num_tokens=tokens,
        )
        return GrammarBench(runs, entries or ENTRIES, options, surroundings)

    conduct(make, as_json=json_)


if __name__ == "__main__":
    app(prog_name="specmesh bench grammar")

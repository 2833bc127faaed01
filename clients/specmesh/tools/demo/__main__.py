"""``specmesh demo`` or ``python -m specmesh.tools.demo``."""

from __future__ import annotations

from typing import Annotated

import typer

from specmesh.cli.local.mesh import MeshOptions
from specmesh.cli.local.model_options import HeadsFolder, PairOptions
from specmesh.cli.local.options import Lookahead, RedisUrl, Threads
from specmesh.serving.process.typer_app import App
from specmesh.tools.demo.course import Demo
from specmesh.tools.kit.bench import Surroundings, conduct
from specmesh.tools.kit.options import Json, PromptsFile, Tokens, Verifiers
from specmesh.tools.kit.prompts import read_prompts

app = App()


@app.command()
def main(
    *,
    pair: PairOptions,
    heads: HeadsFolder = None,
    prompts: PromptsFile = None,
    num_prompts: Annotated[int, typer.Option(min=1, help="Number of prompts, from the first.")] = 5,
    tokens: Tokens = 128,
    verifiers: Verifiers = 1,
    lookahead: Lookahead = None,
    threads: Threads = 1,
    redis_url: RedisUrl = None,
    json_: Json = False,
) -> None:
    """Start a mesh, measure the speedup of each strategy, and check that it changes no text.

    Exits with 1 if a strategy changes one.
    """

    def make(surroundings: Surroundings) -> Demo:
        options = MeshOptions(
            models=pair.real_models(threads, heads),
            num_verifiers=verifiers,
            threads=threads,
            lookahead=lookahead,
            redis_url=redis_url,
            drain_s=1.0,
        )
        # In file order, so that prompts are not selected by answers or speed.
        return Demo(read_prompts(prompts)[:num_prompts], tokens, options, surroundings)

    conduct(make, as_json=json_)


if __name__ == "__main__":
    app(prog_name="specmesh demo")

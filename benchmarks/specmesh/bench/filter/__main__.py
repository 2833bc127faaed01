"""``specmesh bench filter`` or ``python -m specmesh.bench.filter``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specmesh.bench.filter.bench import FilterBench, FilterPlan
from specmesh.cli.local.mesh import MeshOptions
from specmesh.cli.local.model_options import PairOptions
from specmesh.cli.local.options import CalibrationFile, RedisUrl, Threads
from specmesh.cli.local.process import StartError
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.bench import Surroundings, conduct
from specmesh.tools.kit.options import Json, Tokens, Verifiers
from specmesh.tools.kit.prompts import read_prompts

app = App()


@app.command()
def main(
    *,
    pair: PairOptions,
    calibration: CalibrationFile = None,
    num_prompts: Annotated[
        int, typer.Option(min=1, help="Number of held-out prompts to sweep.")
    ] = 16,
    tokens: Tokens = 96,
    verifiers: Verifiers = 1,
    sessions: Annotated[
        int,
        typer.Option(min=0, max=1024, help="Concurrent sessions in the second part; 0 skips it."),
    ] = 32,
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds of the second part.")] = 3,
    figure: Annotated[
        Path | None, typer.Option(help="PNG file to draw.", show_default="none")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="CSV file to write.", show_default="none")
    ] = None,
    threads: Threads = 1,
    redis_url: RedisUrl = None,
    json_: Json = False,
) -> None:
    """Repeat CALID's Figure 3: quality against the share of tokens that the target never sees.

    The prompts are from the half on which the shipped calibration was not fitted. Exits with 1
    unless the end points are exactly the drafter's and the target's own greedy texts.
    """

    def make(surroundings: Surroundings) -> FilterBench:
        file = calibration or pair.calibration
        if file is None:
            raise StartError(
                "no calibration is shipped for this pair: create one with 'specmesh calibrate "
                "confidence' and name it with --calibration"
            )
        prompts = read_prompts(None)
        unseen = prompts[len(prompts) // 2 :]
        options = MeshOptions(
            models=pair.real_models(threads),
            num_verifiers=verifiers,
            num_confidence=1,
            calibration=file,
            threads=threads,
            redis_url=redis_url,
            drain_s=1.0,
        )
        plan = FilterPlan(
            prompts=unseen[:num_prompts],
            num_tokens=tokens,
            num_sessions=sessions,
            num_rounds=rounds,
            crowd_prompts=unseen,
            figure=figure,
            csv=csv,
        )
        return FilterBench(plan, options, surroundings)

    conduct(make, as_json=json_)


if __name__ == "__main__":
    app(prog_name="specmesh bench filter")

"""``specmesh bench prefixes`` or ``python -m specmesh.bench.prefixes``."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer
from rich.console import Console

from specmesh.bench.prefixes.chats import ChatLoad
from specmesh.bench.prefixes.measure import measure
from specmesh.bench.prefixes.mesh import PrefixMesh, Shape, running
from specmesh.bench.prefixes.models import PrefillingModels
from specmesh.bench.prefixes.report import as_json, show
from specmesh.cli.local.checks import check_strategy
from specmesh.cli.local.model_options import PairOptions
from specmesh.cli.local.models import Models
from specmesh.cli.runner import run, until_signalled
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.options import Json, Seed

app = App()

_SIMULATED_VOCAB = 256
_SHIPPED_VOCAB = 4096


@app.command()
def main(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each side.")] = 4,
    chats: Annotated[int, typer.Option(min=1, help="Chats per round and side.")] = 16,
    users: Annotated[int, typer.Option(min=1, help="Number of concurrent chats.")] = 8,
    turns: Annotated[int, typer.Option(min=2, help="Turns of each chat.")] = 4,
    first_tokens: Annotated[
        int, typer.Option(min=1, help="Length of a chat's first message.")
    ] = 1000,
    message_tokens: Annotated[int, typer.Option(min=1, help="Length of later messages.")] = 50,
    answer_tokens: Annotated[int, typer.Option(min=1, help="Length of each answer.")] = 32,
    think: Annotated[float, typer.Option(min=0.001, help="Mean pause in seconds.")] = 2.0,
    strategy: Annotated[
        str, typer.Option(help="Strategy of all answers.", callback=check_strategy)
    ] = "speculative",
    verifiers: Annotated[int, typer.Option(min=1, help="Number of replicas of the target.")] = 4,
    orchestrators: Annotated[int, typer.Option(min=1, help="Orchestrators of each side.")] = 2,
    target_ms: Annotated[float, typer.Option(min=0, help="Time of a target forward.")] = 50.0,
    drafter_ms: Annotated[float, typer.Option(min=0, help="Time of a drafter forward.")] = 5.0,
    prefill_ms: Annotated[
        float, typer.Option(min=0, help="Additional time of an uncached token.")
    ] = 0.5,
    acceptance: Annotated[
        float, typer.Option(min=0, max=1, help="Acceptance rate of draft tokens.")
    ] = 0.8,
    shipped: Annotated[
        bool, typer.Option("--shipped", help="Serve the shipped pair instead of simulated models.")
    ] = False,
    seed: Seed = 0,
    json_: Json = False,
) -> None:
    """Compare chats with orchestrators that share what they know of the replicas' caches, and with
    others that don't, in turns: share of cached tokens, time to first token, tokens computed.

    Each turn goes to any of a side's orchestrators. The shipped pair's context is 1,024 tokens, so
    --shipped requires a shorter first message.
    """
    console = Console(stderr=json_, highlight=False)
    load = ChatLoad(
        users=users,
        turns=turns,
        first_tokens=first_tokens,
        message_tokens=message_tokens,
        answer_tokens=answer_tokens,
        think_s=think,
        strategy=strategy,
        vocab_size=_SHIPPED_VOCAB if shipped else _SIMULATED_VOCAB,
        seed=seed,
    )
    waiting = PrefillingModels(
        target_ms=target_ms,
        target_prefill_ms=prefill_ms,
        drafter_ms=drafter_ms,
        drafter_prefill_ms=prefill_ms * drafter_ms / target_ms if target_ms else 0.0,
        acceptance=acceptance,
    )
    models: Models = PairOptions().real_models(threads=1) if shipped else waiting
    shape = Shape(verifiers=verifiers, orchestrators=orchestrators)

    async def work() -> int:
        async with running(models, shape, Path(mkdtemp(prefix="specmesh-")), console.print) as mesh:
            return await until_signalled(ask(mesh), mesh.kill)

    async def ask(mesh: PrefixMesh) -> int:
        def progress(number: int) -> None:
            console.print(f"round {number + 1} of {rounds}")

        sides = await measure(mesh, load, rounds, chats, progress)
        show(console, sides)
        if json_:
            setting = {"shipped": shipped, "rounds": rounds, "chats": chats}
            typer.echo(json.dumps({**setting, **as_json(load, shape, models, sides)}))
        return 0

    run(work())


if __name__ == "__main__":
    app(prog_name="specmesh bench prefixes")

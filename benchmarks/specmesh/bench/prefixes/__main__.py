"""``specmesh bench prefixes`` or ``python -m specmesh.bench.prefixes``."""

from __future__ import annotations

import json
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixOptions:
    """The chats, and the meshes that answer them."""

    users: Annotated[int, typer.Option(min=1, help="Number of concurrent chats.")] = 8
    turns: Annotated[int, typer.Option(min=2, help="Turns of each chat.")] = 4
    first_tokens: Annotated[int, typer.Option(min=1, help="Length of a chat's first message.")] = (
        1000
    )
    message_tokens: Annotated[int, typer.Option(min=1, help="Length of later messages.")] = 50
    answer_tokens: Annotated[int, typer.Option(min=1, help="Length of each answer.")] = 32
    think: Annotated[float, typer.Option(min=0.001, help="Mean pause in seconds.")] = 2.0
    strategy: Annotated[
        str, typer.Option(help="Strategy of all answers.", callback=check_strategy)
    ] = "speculative"
    verifiers: Annotated[int, typer.Option(min=1, help="Number of replicas of the target.")] = 4
    orchestrators: Annotated[int, typer.Option(min=1, help="Orchestrators of each side.")] = 2
    target_ms: Annotated[float, typer.Option(min=0, help="Time of a target forward.")] = 50.0
    drafter_ms: Annotated[float, typer.Option(min=0, help="Time of a drafter forward.")] = 5.0
    prefill_ms: Annotated[
        float, typer.Option(min=0, help="Additional time of an uncached token.")
    ] = 0.5
    acceptance: Annotated[
        float, typer.Option(min=0, max=1, help="Acceptance rate of draft tokens.")
    ] = 0.8
    shipped: Annotated[
        bool, typer.Option("--shipped", help="Serve the shipped pair instead of simulated models.")
    ] = False
    seed: Seed = 0

    @property
    def load(self) -> ChatLoad:
        """The chats."""
        return ChatLoad(
            users=self.users,
            turns=self.turns,
            first_tokens=self.first_tokens,
            message_tokens=self.message_tokens,
            answer_tokens=self.answer_tokens,
            think_s=self.think,
            strategy=self.strategy,
            vocab_size=_SHIPPED_VOCAB if self.shipped else _SIMULATED_VOCAB,
            seed=self.seed,
        )

    def models(self) -> Models:
        """Return the models of both sides."""
        if self.shipped:
            return PairOptions().real_models(threads=1)
        prefill = self.prefill_ms * self.drafter_ms / self.target_ms if self.target_ms else 0.0
        return PrefillingModels(
            target_ms=self.target_ms,
            target_prefill_ms=self.prefill_ms,
            drafter_ms=self.drafter_ms,
            drafter_prefill_ms=prefill,
            acceptance=self.acceptance,
        )


@app.command()
def main(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each side.")] = 4,
    chats: Annotated[int, typer.Option(min=1, help="Chats per round and side.")] = 16,
    *,
    given: PrefixOptions,
    json_: Json = False,
) -> None:
    """Compare chats with orchestrators that share what they know of the replicas' caches, and with
    others that don't, in turns: share of cached tokens, time to first token, tokens computed.

    Each turn goes to any of a side's orchestrators. The shipped pair's context is 1,024 tokens, so
    --shipped requires a shorter first message.
    """
    console = Console(stderr=json_, highlight=False)
    load, models = given.load, given.models()
    shape = Shape(verifiers=given.verifiers, orchestrators=given.orchestrators)

    async def work() -> int:
        async with running(models, shape, Path(mkdtemp(prefix="specmesh-")), console.print) as mesh:
            return await until_signalled(ask(mesh), mesh.kill)

    async def ask(mesh: PrefixMesh) -> int:
        def progress(number: int) -> None:
            console.print(f"round {number + 1} of {rounds}")

        sides = await measure(mesh, load, rounds, chats, progress)
        show(console, sides)
        if json_:
            setting = {"shipped": given.shipped, "rounds": rounds, "chats": chats}
            typer.echo(json.dumps({**setting, **as_json(load, shape, models, sides)}))
        return 0

    run(work())


if __name__ == "__main__":
    app(prog_name="specmesh bench prefixes")

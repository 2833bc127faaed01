"""``specmesh bench vocabulary`` or ``python -m specmesh.bench.vocabulary``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Annotated

import typer
from rich.console import Console

from specmesh.bench.vocabulary.context import ContextFigures, measure_context
from specmesh.bench.vocabulary.engines import (
    EngineFigures,
    RandomModel,
    measure_engines,
    save_random,
)
from specmesh.bench.vocabulary.meshes import LOOKAHEAD, MeshComparison, compare, serving
from specmesh.bench.vocabulary.report import Found, as_json, show
from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.runner import run
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.options import Json, Threads, Tokens

app = App()


class VocabularyPart(StrEnum):
    """The parts of the benchmark."""

    MESHES = "meshes"
    CONTEXT = "context"
    ENGINES = "engines"


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyOptions:
    """The sizes and the load."""

    small: Annotated[int, typer.Option(min=64, help="Size of the small vocabulary.")] = 4_096
    large: Annotated[int, typer.Option(min=64, help="Size of the large vocabulary.")] = 151_936
    context: Annotated[int, typer.Option(min=16, help="Length of the long prompt.")] = 131_072
    streams: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help="Number of concurrent streams. May be repeated.",
            show_default="1 and 8 for meshes; 1, 8 and 32 for engines",
        ),
    ] = None
    tokens: Tokens = 96
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each side; the medians count.")] = 5
    threads: Threads = 2

    def check(self, parts: Sequence[VocabularyPart]) -> None:
        """Raise BadParameter if ``parts`` can't be measured with these options."""
        if VocabularyPart.MESHES in parts and self.small >= self.large:
            raise typer.BadParameter(
                f"must be less than --large, {self.large}, not {self.small}", param_hint="--small"
            )
        if VocabularyPart.CONTEXT in parts and self.tokens <= LOOKAHEAD + 1:
            raise typer.BadParameter(
                f"must be more than {LOOKAHEAD + 1} for --part context, which times verifications "
                "after an answer's first",
                param_hint="--tokens",
            )

    async def meshes(self, say: Callable[[str], None]) -> list[MeshComparison]:
        """Compare meshes with the two vocabularies."""
        async with AsyncExitStack() as stack:
            meshes = [
                await stack.enter_async_context(serving(each, _logs(), say))
                for each in (self.small, self.large)
            ]
            found = []
            for streams in self.streams or (1, 8):
                say(f"meshes, streams: {streams}")
                found.append(await compare(meshes, streams, self.tokens, self.rounds))
            return found

    async def long_context(self, say: Callable[[str], None]) -> list[ContextFigures]:
        """Measure a long prompt, in the small vocabulary, so that its cost is not mixed with that
        of choosing tokens."""
        say("a long context")
        async with serving(self.small, _logs(), say) as mesh:
            return [await measure_context(mesh, self.context, self.tokens, self.rounds)]

    async def engines(self, say: Callable[[str], None]) -> list[EngineFigures]:
        """Measure the engines with a random model of the large vocabulary."""
        say("the engines")
        with TemporaryDirectory(prefix="specmesh-vocabulary-") as folder:
            model = RandomModel(folder, self.large, 2 * self.tokens + 64, self.threads)
            await asyncio.to_thread(save_random, model)
            streams = self.streams or (1, 8, 32)
            return await asyncio.to_thread(
                measure_engines, model, streams, self.tokens, self.rounds
            )


@app.command()
def main(
    part: Annotated[
        list[VocabularyPart] | None,
        typer.Option(help="Part to run. May be repeated.", show_default="all"),
    ] = None,
    *,
    asked: VocabularyOptions,
    json_: Json = False,
) -> None:
    """Measure from end to end what a large vocabulary and a long context cost, on meshes of
    simulated models and in the engines.

    Exits with 1 if speculative decoding changes the text.
    """
    say = Console(stderr=True, highlight=False).print
    parts = part or list(VocabularyPart)
    asked.check(parts)

    async def work() -> int:
        found = Found(
            meshes=await asked.meshes(say) if VocabularyPart.MESHES in parts else (),
            context=await asked.long_context(say) if VocabularyPart.CONTEXT in parts else (),
            engines=await asked.engines(say) if VocabularyPart.ENGINES in parts else (),
        )
        if json_:
            typer.echo(json.dumps(as_json(found)))
        else:
            show(found, Console())
        return 0 if all(each.identical for each in found.meshes) else ExitStatus.FAILED

    run(work())


def _logs() -> Path:
    return Path(mkdtemp(prefix="specmesh-"))


if __name__ == "__main__":
    app(prog_name="specmesh bench vocabulary")

"""A benchmark with its own mesh: start, measure, shut down, judge."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import typer
from rich.console import Console

from specmesh.cli.local.mesh import MeshOptions
from specmesh.cli.local.models import RealModels
from specmesh.cli.runner import run, until_signalled
from specmesh.tools.kit.traced import TracedMesh


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The directory for a benchmark's files, and the console for its output."""

    directory: Path
    console: Console


class Bench(ABC):
    """A benchmark of real models on a mesh that it starts."""

    def __init__(self, options: MeshOptions, surroundings: Surroundings) -> None:
        assert isinstance(options.models, RealModels)
        self.options = options
        self.models = options.models
        self.directory = surroundings.directory
        self.console = surroundings.console
        self.mesh = TracedMesh(options, self.directory, self.say)

    @abstractmethod
    async def run(self) -> tuple[int, Mapping[str, Any]]:
        """Run everything; return the exit status and the results for JSON.

        Raises StartError, SpecmeshError.
        """

    def say(self, line: str) -> None:
        """Print a line verbatim."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


def conduct(make: Callable[[Surroundings], Bench], *, as_json: bool) -> None:
    """Run the benchmark that ``make`` returns until its end or a signal, and exit.

    With ``as_json`` standard output is one JSON object; text goes to standard error.
    """

    async def work() -> int:
        bench = make(Surroundings(Path(mkdtemp(prefix="specmesh-")), Console(stderr=as_json)))

        async def measure() -> int:
            status, found = await bench.run()
            if as_json:
                typer.echo(json.dumps(found))
            return status

        return await until_signalled(measure(), bench.mesh.kill)

    run(work())

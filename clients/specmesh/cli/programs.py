"""The commands that are programs with their own options and their own --help."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import NoReturn

import typer

from specmesh.cli.exit_status import ExitStatus


@dataclass(frozen=True, slots=True)
class Program:
    """``specmesh NAME`` runs ``module`` as ``python -m`` does. ``distribution`` brings it, and
    ``specmesh[extra]`` what it imports.

    The module is imported then and not before: other commands start without it.
    """

    name: str
    module: str
    extra: str
    summary: str
    distribution: str = "specmesh"

    def run(self, prog: str, arguments: Sequence[str]) -> None:
        """Run it in this process, as ``prog``. Raises Exit if a package is missing."""
        if find_spec(self.module) is None:
            self._fail(self.module, self.distribution)
        sys.argv = [prog, *arguments]
        try:
            runpy.run_module(self.module, run_name="__main__", alter_sys=True)
        except ModuleNotFoundError as error:
            self._fail(str(error.name), f"'specmesh[{self.extra}]'", error)

    def _fail(self, missing: str, needed: str, error: Exception | None = None) -> NoReturn:
        typer.echo(f"specmesh: {self.name} needs {missing}: pip install {needed}", err=True)
        raise typer.Exit(ExitStatus.FAILED) from error


PROGRAMS = (
    Program("load", "specmesh.load", "load", "Find out how much load a mesh bears."),
    Program("demo", "specmesh.tools.demo", "local", "Start a mesh, compare every strategy."),
    Program("certs", "specmesh.serving.certs", "serving", "Make a CA and certificates for a mesh."),
    Program("train", "specmesh.training", "inference", "Train the model pair that is shipped."),
    Program("bench", "specmesh.bench", "local", "Measure this machine.", "specmesh-bench"),
    Program("simulate", "specmesh.tools.simulate", "simulation", "Run strategies in virtual time."),
    Program("plan", "specmesh.tools.plan", "simulation", "Find how many replicas a load needs."),
    Program(
        "calibrate",
        "specmesh.tools.calibrate",
        "local",
        "Fit parameters that strategies decide by.",
    ),
    Program("profile", "specmesh.tools.profile", "local", "Measure a mesh, choose its strategy."),
)

SERVICES = (
    Program("orchestrator", "specmesh.orchestrator", "orchestrator", "Serve clients over a mesh."),
    Program("verifier", "specmesh.verifier", "inference", "Serve a replica of the target."),
    Program("drafter", "specmesh.drafter", "inference", "Serve a drafter."),
    Program(
        "confidence",
        "specmesh.confidence",
        "orchestrator",
        "Decide which draft tokens need no target, for strategy filter.",
    ),
    Program("traces", "specmesh.traces.collector", "traces", "Keep the traces of a mesh."),
    Program("gateway", "specmesh.gateway", "gateway", "Serve OpenAI's API over a mesh."),
)


def add_programs(app: typer.Typer, programs: Iterable[Program]) -> None:
    """Make each of ``programs`` a command of ``app``, by the last word of its name."""
    for program in programs:
        _add(app, program)


def _add(app: typer.Typer, program: Program) -> None:
    def command(context: typer.Context) -> None:
        program.run(context.command_path, context.args)

    app.command(
        program.name.split()[-1],
        help=program.summary,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(command)

"""The subcommands that are separate programs, with their own options and --help."""

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
    """A subcommand that runs ``module`` as ``python -m`` does.

    ``distribution`` contains the module, and ``specmesh[extra]`` the packages that it imports. It
    is imported only when the subcommand runs, so the others need neither.
    """

    name: str
    module: str
    extra: str
    summary: str
    distribution: str = "specmesh"

    def run(self, prog: str, arguments: Sequence[str]) -> None:
        """Run the program in this process under the name ``prog``. Raises Exit if a package is
        missing."""
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
    Program("load", "specmesh.load", "load", "Measure how much load a mesh can take."),
    Program("demo", "specmesh.tools.demo", "local", "Compare all strategies on a local mesh."),
    Program("certs", "specmesh.serving.certs", "serving", "Make a CA and certificates for a mesh."),
    Program(
        "train",
        "specmesh.training",
        "inference",
        "Train the models that are shipped: target, drafter and heads.",
    ),
    Program(
        "bench",
        "specmesh.bench",
        "local",
        "Measure meshes and their parts on this machine.",
        "specmesh-bench",
    ),
    Program(
        "simulate", "specmesh.tools.simulate", "simulation", "Simulate strategies in virtual time."
    ),
    Program("plan", "specmesh.tools.plan", "simulation", "Find how many replicas a load needs."),
    Program(
        "calibrate",
        "specmesh.tools.calibrate",
        "local",
        "Fit the parameters by which strategies decide.",
    ),
    Program(
        "profile", "specmesh.tools.profile", "local", "Measure a mesh and choose its strategy."
    ),
)

SERVICES = (
    Program("orchestrator", "specmesh.orchestrator", "orchestrator", "Serve clients of a mesh."),
    Program("verifier", "specmesh.verifier", "inference", "Serve a replica of the target."),
    Program("drafter", "specmesh.drafter", "inference", "Serve a drafter."),
    Program(
        "confidence",
        "specmesh.confidence",
        "orchestrator",
        "Decide which draft tokens skip the target, for strategy filter.",
    ),
    Program(
        "traces", "specmesh.traces.collector", "traces", "Collect and store the traces of a mesh."
    ),
    Program("gateway", "specmesh.gateway", "gateway", "Serve OpenAI's API over a mesh."),
)


def add_programs(app: typer.Typer, programs: Iterable[Program]) -> None:
    """Add each of ``programs`` to ``app`` as a subcommand named by the last word of its name."""
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

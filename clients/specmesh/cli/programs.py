"""The commands that are programs of ours with their own options and their own --help."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import typer

from specmesh.cli.runner import FAILED


@dataclass(frozen=True, slots=True)
class Program:
    """``specmesh NAME`` runs ``module`` as ``python -m`` does, and needs ``specmesh[extra]``."""

    name: str
    module: str
    extra: str
    summary: str

    def run(self, prog: str, arguments: Sequence[str]) -> None:
        """Run it in this process, as ``prog``. Raises Exit(FAILED) if it lacks a package."""
        sys.argv = [prog, *arguments]
        try:
            runpy.run_module(self.module, run_name="__main__", alter_sys=True)
        except ModuleNotFoundError as error:
            advice = f"pip install 'specmesh[{self.extra}]'"
            typer.echo(f"specmesh: {self.name} needs {error.name}: {advice}", err=True)
            raise typer.Exit(FAILED) from error


PROGRAMS = (
    Program("verifier", "specmesh.verifier", "inference", "Serve a replica of the target."),
    Program("drafter", "specmesh.drafter", "inference", "Serve a drafter."),
    Program(
        "confidence",
        "specmesh.confidence",
        "orchestrator",
        "Decide which draft tokens need no target, for strategy filter.",
    ),
    Program("orchestrator", "specmesh.orchestrator", "orchestrator", "Serve clients over a mesh."),
    Program("train", "specmesh.training", "inference", "Train the model pair that is shipped."),
    Program(
        "simulate",
        "specmesh.orchestrator.simulation",
        "simulation",
        "Run strategies in virtual time.",
    ),
    Program(
        "bench engine",
        "specmesh.inference.benchmark",
        "inference",
        "Time the inference engine against transformers' generate.",
    ),
    Program(
        "bench chaos",
        "specmesh.chaos",
        "local",
        "Break a mesh at random while answers stream, and check every token.",
    ),
    Program(
        "calibrate confidence",
        "specmesh.inference.calibrate",
        "inference",
        "Fit when a drafter is sure enough for the target to agree.",
    ),
)

"""The version that landed last, beside the one under test."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.processes import Process, Processes
from tests.forks import Nursery, surroundings
from tests.install.environments import REPOSITORY, build_tools

COMMIT = Path(__file__).with_name("LANDED").read_text().strip()
"""Whoever lands a version that others run writes its commit there."""
SOURCES = ("services", "orchestrator", "clients")
WITHOUT_WEIGHTS = ":!services/specmesh/models/pycode-*"


class NotHere(Exception):
    """The commit is not in this clone."""


class Landed:
    """Its processes, forked by a nursery of its own."""

    def __init__(self, path: str) -> None:
        self._environment = {**surroundings(), "PYTHONPATH": path}
        self._nursery = Nursery(self._environment)

    def start(self, processes: Processes, program: str, *arguments: str) -> Process:
        """``specmesh.ROLE`` on a free port, or a script."""
        if not program.endswith(".py"):
            arguments = ("--port", "0", *arguments)
        child = self._nursery.start(program, arguments, self._environment)
        process = Process(f"landed-{program}", child)
        processes.started.append(process)
        return process

    def close(self) -> None:
        """End the nursery."""
        self._nursery.close()


def unpack(folder: Path, shared_folder: Path) -> str:
    """Where its packages are, taken from the history of this clone, as PYTHONPATH has them;
    ``shared_folder`` has what builds its stubs.

    Raises ``NotHere``.
    """
    if subprocess.run(_git("cat-file", "-e", f"{COMMIT}^{{commit}}"), check=False).returncode:
        raise NotHere(f"{COMMIT} is not in this clone")
    if subprocess.run(_git("diff", "--quiet", COMMIT, "--", "protos"), check=False).returncode:
        _extract((".", WITHOUT_WEIGHTS), folder)
        tools = build_tools(shared_folder, folder)
        subprocess.run([tools, "hatch_build.py"], cwd=folder, check=True)
    else:
        _extract((*SOURCES, WITHOUT_WEIGHTS), folder)  # the stubs would be those of this version
    return os.pathsep.join(str(folder / each) for each in (*SOURCES, "stubs"))


def _git(*arguments: str) -> Sequence[str]:
    return ("git", "-C", str(REPOSITORY), *arguments)


def _extract(paths: Sequence[str], folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    packed = subprocess.run(
        _git("archive", "--format=tar", COMMIT, "--", *paths), check=True, capture_output=True
    )
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")

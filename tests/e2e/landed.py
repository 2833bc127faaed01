"""The version that landed last, beside the one under test."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.processes import Process, Processes
from tests.forks import Nursery, surroundings
from tests.install.environments import REPOSITORY, build_wheel

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


def unpack(folder: Path) -> str:
    """Where its packages are, taken from the history of this clone, as PYTHONPATH has them.

    Raises ``NotHere``.
    """
    if subprocess.run(_git("cat-file", "-e", f"{COMMIT}^{{commit}}"), check=False).returncode:
        raise NotHere(f"{COMMIT} is not in this clone")
    if subprocess.run(_git("diff", "--quiet", COMMIT, "--", "protos"), check=False).returncode:
        return str(_built(folder))
    _extract((*SOURCES, WITHOUT_WEIGHTS), folder)  # the stubs would be those of this version
    return os.pathsep.join(str(folder / each) for each in SOURCES)


def _git(*arguments: str) -> Sequence[str]:
    return ("git", "-C", str(REPOSITORY), *arguments)


def _extract(paths: Sequence[str], folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    packed = subprocess.run(
        _git("archive", "--format=tar", COMMIT, "--", *paths), check=True, capture_output=True
    )
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")


def _built(folder: Path) -> Path:
    """With the stubs of its own protos."""
    source, wheels, site = (folder / name for name in ("source", "wheels", "site"))
    _extract((".", WITHOUT_WEIGHTS), source)
    wheels.mkdir()
    with zipfile.ZipFile(build_wheel(wheels, source)) as wheel:
        wheel.extractall(site)
    return site

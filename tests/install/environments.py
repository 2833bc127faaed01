"""Environments that hold what an extra asks for, and nothing else.

The wheel is really installed. What it requires is linked from the environment that runs the
tests, as its own metadata and theirs name it: the very modules that pip would have put there,
without a download and without a second torch.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path, PurePosixPath

from filelock import FileLock
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[2]
OURS = {"specmesh", "specmesh-models", "specmesh-bench"}
"""What is built here."""
UV = (sys.executable, "-m", "uv")


def build_tools(folder: Path, source: Path = REPOSITORY) -> Path:
    """The Python of an environment with what the pyproject.toml of ``source`` says it is built
    by, and nothing else. It is made in ``folder`` by whoever asks first; the others wait."""
    requires = tomllib.loads((source / "pyproject.toml").read_text())["build-system"]["requires"]
    tools = folder / f"tools-{sha256(repr(requires).encode()).hexdigest()[:8]}"
    with FileLock(f"{tools}.lock"):
        if not tools.exists():
            venv.create(tools, with_pip=False)
            install(tools, *requires)
    return tools / "bin" / "python"


def build_wheel(folder: Path, tools: Path) -> Path:
    """Built from the source distribution, as an index would hand it out, by ``build_tools``.

    In place it would write the stubs anew while other tests import them.
    """
    command = [*UV, "build", "--quiet", "--no-build-isolation", "--python", tools]
    subprocess.run([*command, "--out-dir", folder, REPOSITORY], check=True)
    (wheel,) = folder.glob("specmesh-*.whl")
    return wheel


def build_weights(folder: Path) -> Path:
    """The wheel of the shipped pair."""
    return _built(REPOSITORY / "services" / "specmesh" / "models", folder)


def build_benchmarks(folder: Path) -> Path:
    """The wheel of ``specmesh bench``."""
    return _built(REPOSITORY / "benchmarks", folder)


def _built(source: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*command, "--directory", folder], cwd=source, check=True, capture_output=True)
    (wheel,) = folder.glob("specmesh_*.whl")
    return wheel


class Installed:
    """The wheels, installed in a virtual environment without anything that they need; ``compiled``
    where many programs are to start."""

    def __init__(self, folder: Path, *wheels: Path, compiled: bool = False) -> None:
        self.folder = folder
        venv.create(folder, with_pip=False)
        options = ("--compile-bytecode",) if compiled else ()
        install(folder, "--no-deps", "--no-index", *options, *map(str, wheels))
        (site,) = folder.glob("lib/python*/site-packages")
        self.specmesh = next(
            each for each in distributions(path=[str(site)]) if each.name == "specmesh"
        )

    def with_extra(self, extra: str) -> Environment:
        """``specmesh[extra]`` alone, or ``specmesh`` if ``extra`` is empty."""
        return Environment(self, extra)


class Environment:
    """``installed``, and beside it what ``extra`` asks for."""

    def __init__(self, installed: Installed, extra: str) -> None:
        self._folder = installed.folder
        required = self._folder / f"with-{extra or 'nothing'}"
        self._variables = {
            "TMPDIR": str(self._folder),
            "PYTHONPATH": str(required),
            "PYTHONUTF8": "1",
            "PYTHONDONTWRITEBYTECODE": "1",  # what is linked belongs to others
        }
        self.extras = _all_extras(installed.specmesh, extra)
        """``extra`` and those it is made of."""
        self.requires = installed.specmesh.requires or []
        for each in _required(installed.specmesh, self.extras):
            _link(each, required)

    def run(self, program: str, *arguments: str, **environment: str) -> Ended:
        """Run ``program`` of this environment: "python", "specmesh"."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        return subprocess.run(
            [self._folder / "bin" / program, *arguments],
            capture_output=True,
            check=False,
            cwd=self._folder,
            encoding="utf-8",
            env={**kept, **self._variables, **environment},
            stdin=subprocess.DEVNULL,
            timeout=300,
        )


Ended = subprocess.CompletedProcess[str]


def install(folder: Path, *arguments: str) -> None:
    """Install in the environment in ``folder``: by uv, in a tenth of the time that pip takes."""
    python = folder / "bin" / "python"
    subprocess.run([*UV, "pip", "install", "--quiet", "--python", python, *arguments], check=True)


def _all_extras(specmesh: Distribution, extra: str) -> frozenset[str]:
    """``extra`` and those that it names in turn, as in ``specmesh[cli,inference]``."""
    extras, waiting = set[str](), {extra} - {""}
    while waiting:
        extras |= waiting
        asked = _applying(specmesh, extras)
        waiting = {each for other in asked if other.name == specmesh.name for each in other.extras}
        waiting -= extras
    return frozenset(extras)


def _required(root: Distribution, extras: Iterable[str]) -> list[Distribution]:
    """What ``root`` needs with ``extras``, what that needs, and so on; without ``root``."""
    found: dict[tuple[str, frozenset[str]], Distribution] = {}
    waiting = _applying(root, extras)
    while waiting:
        asked = waiting.pop()
        key = (canonicalize_name(asked.name), frozenset(asked.extras))
        if key not in found and asked.name not in OURS:
            found[key] = distribution(asked.name)
            waiting += _applying(found[key], asked.extras)
    return list({name: found for (name, _), found in found.items()}.values())


def _applying(of: Distribution, extras: Iterable[str]) -> list[Requirement]:
    """The requirements whose markers hold here."""
    requirements = [Requirement(text) for text in of.requires or ()]
    contexts = [{"extra": extra} for extra in extras] or [{"extra": ""}]
    return [
        each
        for each in requirements
        if each.marker is None or any(each.marker.evaluate(context) for context in contexts)
    ]


def _link(installed: Distribution, folder: Path) -> None:
    """Scripts are left out: they name the interpreter of the environment they come from."""
    for path in _own_paths(installed.name):
        link = folder / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(Path(str(installed.locate_file(path))))


@cache
def _own_paths(name: str) -> set[PurePosixPath]:
    """Its files, those in a folder that no other distribution has files in as that folder."""
    paths = set()
    for file in _files(name):
        outermost_first = list(file.parents)[-2::-1]
        own = (folder for folder in outermost_first if len(_owners()[folder]) == 1)
        paths.add(next(own, file))
    return paths


@cache
def _owners() -> Mapping[PurePosixPath, set[str]]:
    """Who has files in a folder, of all that is installed where the tests run."""
    owners = defaultdict(set)
    for name in {each.name for each in distributions()}:
        for folder in {folder for file in _files(name) for folder in file.parents}:
            owners[folder].add(name)
    return owners


@cache
def _files(name: str) -> list[PurePosixPath]:
    """Those in site-packages."""
    files = distribution(name).files or ()
    return [PurePosixPath(file) for file in files if ".." not in file.parts]

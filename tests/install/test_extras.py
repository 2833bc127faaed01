"""What each extra offers starts with that extra alone; what needs another one says which."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.install.environments import Ended, Environment, Installed, build_benchmarks

from specmesh.bench.programs import BENCHMARKS
from specmesh.cli import programs as cli

PROGRAMS = {tuple(each.name.split()): each for each in (*cli.PROGRAMS, *BENCHMARKS)} | {
    ("serve", each.name): each for each in cli.SERVICES
}
WALK = str(Path(__file__).with_name("walk.py"))
HELPED = str(Path(__file__).with_name("helped.py"))
SAMPLE = Path(__file__).parents[1] / "traces" / "samples" / "otlp.json"

CLIENT = {("generate",), ("chat",), ("models",)}
"""They need a mesh, wherever it is, and nothing more here."""

REDIS = {"REDIS_URL": "redis://127.0.0.1:1"}
"""A Redis is given, for its lack would be told first."""

Make = Callable[[str], Environment]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Iterator[Make]:
    """An environment by the extra it has; each is made once."""
    folder = tmp_path_factory.mktemp("install")
    benchmarks = build_benchmarks(folder)
    yield cache(Installed(folder / "installed", wheel, benchmarks, compiled=True).with_extra)
    shutil.rmtree(folder)  # a quarter of a gigabyte


@pytest.fixture(scope="module")
def with_cli(installed: Make) -> dict[tuple[str, ...], Ended]:
    """What ``--help`` of every command says where the extra is ``cli``."""
    return commands(installed("cli"))


def commands(environment: Environment) -> dict[tuple[str, ...], Ended]:
    """What ``--help`` of ``specmesh`` and of all below it says, by the words of the command."""
    walked = environment.run("python", WALK, TYPER_USE_RICH="0")
    assert walked.returncode == 0, walked.stderr
    return {tuple(path): Ended(path, *helped) for path, *helped in json.loads(walked.stdout)}


def assert_helped(ended: Ended) -> None:
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "usage:" in ended.stdout.lower()


def extra_advised(ended: Ended) -> str | None:
    """The extra that standard error, one line, says to install."""
    said = re.fullmatch(r"specmesh: .*: pip install 'specmesh\[(\w+)\]'.*\n", ended.stderr)
    return said[1] if said else None


@pytest.mark.parametrize(
    ("extra", "module"), [("", "specmesh.client"), ("serving", "specmesh.serving.process.server")]
)
def test_what_other_programs_are_built_on_is_imported(installed: Make, extra: str, module: str):
    ended = installed(extra).run("python", "-c", f"import {module}")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_without_the_extra_cli_the_command_line_asks_for_it(installed: Make):
    ended = installed("").run("specmesh", "--help")
    assert ended.returncode == 1
    assert extra_advised(ended) == "cli"


@pytest.mark.parametrize("extra", sorted({program.extra for program in PROGRAMS.values()}))
def test_the_programs_of_an_extra_start_with_it_alone(installed: Make, extra: str):
    modules = [program.module for program in PROGRAMS.values() if program.extra == extra]
    ended = installed(extra).run("python", HELPED, *modules)
    assert ended.returncode == 0, ended.stderr
    for module, helped in zip(modules, json.loads(ended.stdout), strict=True):
        assert_helped(Ended(module, *helped))


def test_without_the_benchmarks_their_command_says_what_to_install(tmp_path: Path, wheel: Path):
    ended = Installed(tmp_path / "alone", wheel).with_extra("cli").run("specmesh", "bench", "hops")
    assert ended.returncode == 1
    assert ended.stderr == "specmesh: bench needs specmesh.bench: pip install specmesh-bench\n"
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("role", ["verifier", "drafter"])
def test_a_server_that_lacks_torch_names_the_extra_it_needs(installed: Make, role: str):
    ended = installed("orchestrator").run("python", "-m", f"specmesh.{role}", "--model", "any")
    assert ended.returncode == 1
    assert "Traceback" not in ended.stdout + ended.stderr
    assert "torch is not installed: pip install 'specmesh[inference]'" in ended.stderr


def test_with_the_extra_cli_commands_start_and_programs_name_the_extra_they_need(
    installed: Make, with_cli: dict[tuple[str, ...], Ended]
):
    groups = {path[:-1] for path in with_cli}
    assert with_cli.keys() > PROGRAMS.keys() | CLIENT
    for path, helped in with_cli.items():
        if path in PROGRAMS.keys() - groups:
            # One that needs no package for its help needs it at the latest when it starts.
            ended = helped
            if not helped.returncode:
                ended = installed("cli").run("specmesh", *path, **REDIS)
            assert ended.returncode == 1
            assert extra_advised(ended) == PROGRAMS[path].extra
        else:
            assert_helped(helped)


def test_with_the_extra_cli_what_starts_processes_names_the_extra_they_need(
    installed: Make, with_cli: dict[tuple[str, ...], Ended]
):
    groups = {path[:-1] for path in with_cli}
    readers = {path for path in with_cli if path[:1] in {("trace",), ("models",)}}
    starters = with_cli.keys() - groups - PROGRAMS.keys() - CLIENT - readers
    extras = {("up",): "local", ("train", "heads"): "inference"}
    assert starters == extras.keys()
    for path, extra in extras.items():
        anywhere = ("--port", "0") if path == ("up",) else ()  # else a port in use is told first
        ended = installed("cli").run("specmesh", *path, *anywhere, **REDIS)
        assert ended.returncode == 1, path
        assert "Traceback" not in ended.stdout + ended.stderr
        assert extra_advised(ended) == extra, (path, ended.stderr)


def test_with_the_extra_cli_a_trace_becomes_a_page_and_its_server_names_the_extra_it_needs(
    installed: Make, tmp_path: Path
):
    def run(*command: str) -> Ended:
        stored = {"SPECMESH_TRACES__STORE": str(tmp_path / "traces.sqlite")}
        return installed("cli").run("specmesh", "trace", *command, **stored)

    assert run("import", str(SAMPLE)).returncode == 0
    ended = run("open", "last", "--export", str(tmp_path / "trace.html"))
    assert ended.returncode == 0, ended.stderr
    assert "page/waterfall" in (tmp_path / "trace.html").read_text("utf-8")
    ended = run("open", "last", "--no-browser")
    assert ended.returncode == 1
    assert extra_advised(ended) == "traces"


def test_with_the_extra_local_every_command_starts(installed: Make):
    for helped in commands(installed("local")).values():
        assert_helped(helped)

"""``--help`` of every command on a terminal of 80 columns."""

import importlib
import re
from pathlib import Path

import pytest
import typer
from pydantic_settings import BaseSettings
from typer.testing import CliRunner

from specmesh.bench.programs import BENCHMARKS
from specmesh.cli.app import app
from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.programs import PROGRAMS, SERVICES
from specmesh.serving.process.command_line import make_app

WIDTH = 80


def module(program):
    """What ``python -m`` runs for it."""
    try:
        return importlib.import_module(f"{program.module}.__main__")
    except ModuleNotFoundError as error:
        if error.name != f"{program.module}.__main__":
            raise
        return importlib.import_module(program.module)


def service_app(program):
    """The app that reads the settings of a service."""
    found = [
        each
        for each in vars(module(program)).values()
        if isinstance(each, type)
        and issubclass(each, BaseSettings)
        and each.__module__.startswith(program.module)
    ]
    (settings,) = [each for each in found if each.model_config.get("env_prefix")]
    return make_app(settings, lambda **_: None)


def below(command, *path):
    """All commands of a tree but those that are programs of their own, with how they are called."""
    yield path
    for name, each in getattr(command, "commands", {}).items():
        if each.context_settings.get("ignore_unknown_options") is None:
            yield from below(each, *path, name)


APPS = {
    "specmesh": lambda: app,
    **{
        f"specmesh {each.name}": (lambda each=each: module(each).app)
        for each in (*PROGRAMS, *BENCHMARKS)
    },
    **{f"specmesh serve {each.name}": (lambda each=each: service_app(each)) for each in SERVICES},
}


def options(command):
    return [name for each in command.params for name in (*each.opts, *each.secondary_opts)]


@pytest.mark.parametrize("name", APPS)
def test_every_option_is_named_whole_and_no_line_is_too_long(name):
    typed = APPS[name]()
    root = typer.main.get_command(typed)
    for path in below(root):
        done = CliRunner(env={"COLUMNS": str(WIDTH)}).invoke(
            typed, [*path, "--help"], prog_name=name
        )
        assert done.exit_code == 0, done.output
        assert "…" not in done.output
        assert max(map(len, done.output.splitlines())) <= WIDTH
        assert re.search(f"Usage: {' '.join((name, *path))} ", done.output)
        command = root
        for word in path:
            command = command.commands[word]
        said = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", done.output))
        named = {each for each in options(command) if each.startswith("-")}
        assert named <= said
        assert not [each.name for each in command.params if not getattr(each, "help", None)]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("specmesh", []),
        ("specmesh", ["trace"]),
        ("specmesh", ["serve"]),
        ("specmesh load", []),
        ("specmesh bench", []),
        ("specmesh simulate", []),
        ("specmesh profile", []),
        ("specmesh calibrate", []),
    ],
)
def test_a_group_that_is_called_by_itself_shows_its_help(name, path):
    runner = CliRunner(env={"COLUMNS": str(WIDTH)})
    bare, helped = (
        runner.invoke(APPS[name](), [*path, *more], prog_name=name) for more in ([], ["--help"])
    )
    assert bare.exit_code == ExitStatus.USAGE
    assert bare.stdout == ""
    assert bare.stderr.strip() == helped.stdout.strip() != ""


@pytest.mark.parametrize("program", [*PROGRAMS, *BENCHMARKS], ids=lambda each: each.name)
def test_a_program_calls_itself_as_it_was_called(program):
    source = Path(module(program).__file__).read_text("utf-8")
    assert f'app(prog_name="specmesh {program.name}")' in source


@pytest.mark.parametrize("service", SERVICES, ids=lambda each: each.name)
def test_what_a_service_needs_comes_first_and_its_example_of_a_variable_is_an_option(service):
    done = CliRunner(env={"COLUMNS": str(WIDTH)}).invoke(service_app(service), ["--help"])
    panels = re.findall(r"^╭─ ([\w ]+) ─", done.output, re.MULTILINE)
    assert panels[0] == ("Required" if service.name == "orchestrator" else "Options")
    assert len(panels) == len(set(panels))
    words = " ".join(done.output.split())
    example = re.search(r"and the option's name, such as \S+ for (--[\w-]+)\.", words)
    assert example
    assert f"{example[1]} " in words.partition("Each option can")[0]

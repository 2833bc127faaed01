"""Texts that are not UTF-8 are refused in a line, with status 2; nothing is sent."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.command import specmesh
from typer.testing import CliRunner

from specmesh.cli.app import app
from specmesh.client.testing import FakeMesh

WRONG = os.fsdecode(b"caf\xe9")
"""As Python takes in an argument that is not UTF-8."""


def words(done):
    return " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("generate", WRONG),
        ("generate", "x", "--model", WRONG),
        ("generate", "x", "--stop", "a", "--stop", WRONG),
        ("generate", "x", "-t", WRONG),
        ("chat", "--system", WRONG),
        ("models", "--target", WRONG),
        ("trace", "list", "--session", WRONG),
    ],
)
def test_an_argument(arguments):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert re.search(r"b'caf\\xe9(:50051)?' is not UTF-8", words(result))


@pytest.mark.parametrize(
    "arguments",
    [
        ("load", "run", "--model", WRONG),
        ("serve", "orchestrator", "--verifiers", WRONG),
        ("bench", "strategies", "--prompts", WRONG),
        (WRONG,),
        ("generate", f"--{WRONG}"),
    ],
)
def test_arguments_of_programs_and_names_of_commands_and_options(arguments):
    done = specmesh(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [("generate", "-"), ("chat",)])
@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_standard_input(command, locale, monkeypatch):
    monkeypatch.setenv("LC_ALL", locale)
    with FakeMesh() as mesh:
        result = CliRunner().invoke(app, [*command, "-t", mesh.address], input=b"caf\xe9\n")
    assert result.exit_code == 2
    assert "standard input: not UTF-8: byte 3 is 0xe9" in words(result)
    assert mesh.requests == []


def test_an_argument_that_is_utf8_is_sent_whatever_the_locale():
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    with FakeMesh() as mesh:
        mesh.answer("well met")
        arguments = ["generate", b"h\xc3\xa9", "--stop", b"\xe6\x97\xa5", "-t", mesh.address]
        subprocess.run(
            [Path(sys.executable).with_name("specmesh"), *arguments],
            env={**os.environ, **locale},
            check=True,
        )
    assert mesh.requests[0].text == "hé"
    assert mesh.requests[0].stopping.stop_strings == ["日"]


def test_a_letter_that_standard_output_cannot_show_is_shown_as_its_code():
    with FakeMesh() as mesh:
        mesh.answer("caf", "é 日")
        environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
        script = Path(sys.executable).with_name("specmesh")
        done = subprocess.run(
            [script, "generate", "x", "-t", mesh.address],
            env=environment,
            capture_output=True,
            check=False,
        )
    assert (done.returncode, done.stdout.decode("latin-1")) == (0, "café \\u65e5\n")

"""The console script as a real process, mostly a forked one."""

import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.command import specmesh

from specmesh.client.testing import FakeMesh

WITHOUT_TYPER = (
    "import sys; sys.modules['typer'] = None; from specmesh.cli.main import main; main()"
)


def test_help_names_every_command():
    done = specmesh("--help")
    assert done.returncode == 0
    for command in (
        *("up", "generate", "chat", "models", "serve"),
        *("load", "demo", "bench", "train"),
    ):
        assert f" {command} " in done.stdout
    services = specmesh("serve", "--help").stdout
    for role in ("orchestrator", "verifier", "drafter", "confidence"):
        assert f" {role} " in services


def test_it_tells_its_version():
    assert specmesh("--version").stdout == f"specmesh {version('specmesh')}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_it_completes_commands_in_shells(shell):
    environment = {**os.environ, "_SPECMESH_COMPLETE": f"complete_{shell}"}
    asked = {"COMP_WORDS": "specmesh gen", "COMP_CWORD": "1"}  # bash
    asked |= {"_TYPER_COMPLETE_ARGS": "specmesh gen", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    script = Path(sys.executable).with_name("specmesh")
    done = subprocess.run(
        [script], capture_output=True, text=True, check=True, env={**environment, **asked}
    )
    assert "generate" in done.stdout
    assert "models" not in done.stdout


def test_without_its_packages_it_says_how_to_get_them():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TYPER, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "specmesh: typer is not installed: pip install 'specmesh[cli]'\n"


@pytest.mark.parametrize("role", ["verifier", "confidence", "orchestrator"])
def test_a_service_is_passed_all_its_arguments_and_its_exit_status_back(role):
    helped = specmesh("serve", role, "--help")
    assert helped.returncode == 0
    assert f"Usage: specmesh serve {role}" in helped.stdout
    assert "--drain-seconds" in helped.stdout
    refused = specmesh("serve", role, "--port", "nonsense")
    assert refused.returncode == 2
    assert "--port" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("command", [("up",), ("demo",), ("bench", "strategies")])
def test_a_password_in_the_arguments_is_refused_unsaid(command):
    done = specmesh(*command, "--redis-url", "redis://:s3cret@127.0.0.1:1")
    assert done.returncode == 2
    assert "REDIS_URL" in done.stderr
    assert "s3cret" not in done.stdout + done.stderr


def test_a_mesh_that_cannot_start_says_why_in_the_failed_process_words(tmp_path, no_process_left):
    (tmp_path / "config.json").write_text("{}")
    done = specmesh("up", "--port", "0", "--target", str(tmp_path), "--drafter", "random")
    assert done.returncode == 1
    assert " cannot start: " in done.stderr
    assert str(tmp_path) in done.stderr


CTRL_C_WHILE_IT_IMPORTS = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, *_):
        if name == "specmesh.cli.app":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
from specmesh.cli.main import main
main()
"""


def test_ctrl_c_while_a_command_is_imported_ends_it_without_a_traceback():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job has it ignored
    done = subprocess.run(
        [sys.executable, "-c", CTRL_C_WHILE_IT_IMPORTS, "models"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", [("generate", "x"), ("models",), ("load", "run", "--help")])
def test_an_output_that_cannot_be_written_is_told_in_one_line(command, unbuffered):
    with FakeMesh() as mesh, open("/dev/full", "w") as full:
        mesh.answer("well met")
        done = subprocess.run(
            [Path(sys.executable).with_name("specmesh"), *command],
            env={**os.environ, "SPECMESH_TARGET": mesh.address, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.stderr == "specmesh: cannot write the output: no space left on device\n"
    assert done.returncode == 1


@pytest.mark.parametrize("command", [("generate", "-"), ("chat",), ("trace", "import", "-")])
def test_a_closed_standard_input_is_told(command):
    done = subprocess.run(
        ["sh", "-c", '"$@" <&-', "sh", Path(sys.executable).with_name("specmesh"), *command],
        env={**os.environ, "SPECMESH_TARGET": "127.0.0.1:1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "standard input is closed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [("generate", "-"), ("chat",)])
def test_a_standard_input_that_cannot_be_read_is_told(command):
    with FakeMesh() as mesh, open("/proc/self/mem", "rb") as unreadable:  # at its first byte
        done = subprocess.run(
            [Path(sys.executable).with_name("specmesh"), *command],
            env={**os.environ, "SPECMESH_TARGET": mesh.address},
            stdin=unreadable,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert "cannot read standard input: Input/output error" in done.stderr

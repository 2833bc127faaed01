"""The console script as a real process."""

import subprocess
import sys

import pytest

SCRIPT = "from specmesh.cli.main import main; main()"
WITHOUT_TYPER = "import sys; sys.modules['typer'] = None; " + SCRIPT


def specmesh(*arguments, script=SCRIPT, timeout=60):
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_help_names_every_command():
    done = specmesh("--help")
    assert done.returncode == 0
    for command in ("up", "generate", "models", "demo", "bench", "train", "drafter", "verifier"):
        assert f" {command} " in done.stdout


def test_without_its_packages_it_says_how_to_get_them():
    done = specmesh("--help", script=WITHOUT_TYPER)
    assert done.returncode == 1
    assert done.stderr == "specmesh: typer is not installed: pip install 'specmesh[cli]'\n"


@pytest.mark.parametrize("role", ["verifier", "confidence", "orchestrator"])
def test_a_service_is_passed_all_its_arguments_and_its_exit_status_back(role):
    helped = specmesh(role, "--help")
    assert helped.returncode == 0
    assert f"specmesh {role}" in helped.stdout
    assert "--drain-seconds" in helped.stdout
    refused = specmesh(role, "--port", "nonsense")
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
    done = specmesh("up", "--port", "0", "--target", str(tmp_path), "--drafter", "random")
    assert done.returncode == 1
    assert "ended with status 1" in done.stderr
    assert str(tmp_path) in done.stderr

"""The examples in clients/examples, as somebody would run them, against a live mesh."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.answers import answer
from tests.serving.conftest import free_port

EXAMPLES = Path(__file__).parents[2] / "clients" / "examples"
PROMPT = "def read_config(path):"
SECONDS = 120


def run(*command, **options):
    """How the command ended, and what it printed."""
    return subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, check=False, **options
    )


@pytest.fixture(scope="session")
def node(tmp_path_factory):
    """Runs ``generate.js`` with its packages."""
    if not shutil.which("npm"):
        pytest.skip("there is no npm on PATH")
    root = tmp_path_factory.mktemp("node")
    folder = root / "clients" / "examples" / "node"
    shutil.copytree(EXAMPLES / "node", folder, ignore=shutil.ignore_patterns("node_modules"))
    (root / "protos").symlink_to(EXAMPLES.parents[1] / "protos")
    installed = run("npm", "install", "--no-audit", "--no-fund", "--no-package-lock", cwd=folder)
    assert installed.returncode == 0, installed.stderr
    return lambda *arguments: run("node", "generate.js", *arguments, cwd=folder)


async def test_node_gets_the_text_that_python_gets(node, mesh, client):
    expected = await answer(client, PROMPT, temperature=0.8, seed=7, max_tokens=64)
    done = node(PROMPT, mesh.orchestrator.address)
    assert done.stdout == expected.text, done.stderr
    assert "seed 7: 64 tokens" in done.stderr


def test_node_goes_on_where_a_target_is_down(node, mesh):
    done = node(PROMPT, f"127.0.0.1:{free_port()}", mesh.orchestrator.address)
    assert done.returncode == 0, done.stderr
    assert "64 tokens" in done.stderr


def test_node_says_what_is_wrong(node, mesh):
    done = node("", mesh.orchestrator.address)
    assert done.returncode == 1
    assert "INVALID_ARGUMENT INVALID_FIELD: text: must not be empty" in done.stderr


def python(name, mesh, **options):
    script = EXAMPLES / "python" / name
    return run(sys.executable, str(script), mesh.orchestrator.address, **options)


async def test_python_streams_and_answers_at_once_and_in_batches(mesh, client):
    first = await answer(client, PROMPT, temperature=0, max_tokens=32)
    second = await answer(client, "import os", temperature=0.8, seed=7, max_tokens=32)
    assert python("stream.py", mesh).stdout == f"{first.text}\n"
    assert python("stream_async.py", mesh).stdout == f"{first.text}\n{second.text}\n"
    lines = python("batch.py", mesh, input=f"{PROMPT}\n\n").stdout.splitlines()
    assert json.loads(lines[0]) == {"prompt": PROMPT, "text": first.text}
    assert json.loads(lines[1]) == {"prompt": "", "error": "text: must not be empty"}


def test_python_says_that_a_model_without_a_template_cannot_chat(mesh):
    done = python("chat.py", mesh)
    assert done.returncode == 1
    assert "NO_CHAT_TEMPLATE" in done.stderr


async def test_grpcurl_gets_the_text_that_python_gets(mesh, client):
    expected = await answer(client, PROMPT, temperature=0, max_tokens=16)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = run(
        str(EXAMPLES / "grpcurl.sh"),
        mesh.orchestrator.address,
        PROMPT,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0, done.stderr
    assert "specmesh.v1.GenerationService" in done.stdout.splitlines()
    whole = json.loads(done.stdout[done.stdout.rindex('{\n  "started"') :])
    assert whole["chunk"]["text"] == expected.text

"""The examples in clients/examples, as somebody would run them, against a live mesh."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.answers import answer
from tests.e2e.processes import Process, Processes
from tests.ports import free_port

from specmesh.client import Client

EXAMPLES = Path(__file__).parents[2] / "clients" / "examples"
PROMPT = "def read_config(path):"
SECONDS = 120
BUILD_SECONDS = 400  # gRPC is compiled, unless Go's cache has it: 20 s of a core
GO_README = EXAMPLES / "go" / "README.md"
GO_PACKAGES = Path("/usr/share/gocode/src/google.golang.org/grpc")
GO_TOOLS = ("go", "protoc", "protoc-gen-go", "protoc-gen-go-grpc")
SLOW = ("--backend", "simulated", "--simulated-each-ms", "40")
ALONE = ("--strategy", "autoregressive")


def run(*command, timeout=SECONDS, **options):
    """How the command ended, and what it printed."""
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=False, **options
    )


def copy_of(language, folder):
    """The folder of an example, with the protos beside it as in the repository."""
    there = folder / "clients" / "examples" / language
    made = shutil.ignore_patterns("node_modules", "gopath", "v1", "generate", "go.mod", "go.sum")
    shutil.copytree(EXAMPLES / language, there, ignore=made)
    (folder / "protos").symlink_to(EXAMPLES.parents[1] / "protos")
    return there


def node(folder):
    """``generate.js`` with its packages."""
    if not shutil.which("npm"):
        pytest.skip("there is no npm on PATH")
    there = copy_of("node", folder)
    installed = run("npm", "install", "--no-audit", "--no-fund", "--no-package-lock", cwd=there)
    assert installed.returncode == 0, installed.stderr
    return "node", str(there / "generate.js")


def go(folder):
    """``generate``, built by the commands that its README has for Debian."""
    missing = [tool for tool in GO_TOOLS if not shutil.which(tool)]
    if missing or not GO_PACKAGES.exists():
        pytest.skip(f"not on PATH: {missing}; {GO_README} has Debian's packages")
    there = copy_of("go", folder)
    (commands,) = re.findall(r"```sh\n(mkdir .*?)```", GO_README.read_text(), re.DOTALL)
    built = run("bash", "-euc", commands, cwd=there, timeout=BUILD_SECONDS)
    assert built.returncode == 0, built.stderr
    return (str(there / "generate"),)


@pytest.fixture(scope="session", params=[node, go])
def generate(request, tmp_path_factory):
    """The command of an example that carries an answer on by itself, in each language."""
    return request.param(tmp_path_factory.mktemp("example"))


@dataclass(frozen=True, slots=True)
class Slow:
    """A replica whose answers take a second and more, a Redis, and what is answered."""

    verifier: Process
    store: tuple[str, str]
    text: str

    def orchestrator(self, processes, *flags):
        """One that asks the replica alone, without a store unless ``flags`` name it."""
        return processes.orchestrator([self.verifier], [], *ALONE, *flags)


@pytest.fixture(scope="module")
def slow():
    with Processes() as processes:
        _, redis_url = processes.redis()
        verifier = processes.service("verifier", *SLOW)
        text = expected(processes.orchestrator([verifier], [], *ALONE).address)
        yield Slow(verifier, ("--redis-url", redis_url), text)


@contextmanager
def answering(command, *arguments):
    """The example at work."""
    with subprocess.Popen(
        [*command, PROMPT, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def expected(address):
    """The text that the examples ask for."""
    with Client(address) as client:
        stream = client.generate(PROMPT, temperature=0.8, seed=7, max_tokens=64)
        return "".join(chunk.text for chunk in stream)


def test_the_text_is_that_which_python_gets(generate, mesh):
    done = run(*generate, PROMPT, mesh.orchestrator.address)
    assert done.stdout == expected(mesh.orchestrator.address), done.stderr
    assert "seed 7: 64 tokens" in done.stderr


def test_it_goes_on_where_a_target_is_down(generate, mesh):
    done = run(*generate, PROMPT, f"127.0.0.1:{free_port()}", mesh.orchestrator.address)
    assert done.returncode == 0, done.stderr
    assert "64 tokens" in done.stderr


def test_it_says_what_is_wrong(generate, mesh):
    done = run(*generate, "", mesh.orchestrator.address)
    assert done.returncode == 1
    assert "INVALID_FIELD: text: must not be empty" in done.stderr


@pytest.mark.parametrize(
    ("harm", "stored", "method"),
    [(signal.SIGKILL, True, "Resume"), (signal.SIGSTOP, False, "Generate")],
    ids=["killed", "frozen-without-a-store"],
)
def test_an_orchestrator_is_lost_in_the_middle_and_the_text_is_the_same(
    generate, slow, processes, harm, stored, method
):
    flags = slow.store if stored else ()
    victim, heir = (slow.orchestrator(processes, *flags) for _ in range(2))
    with answering(generate, victim.address, heir.address) as child:
        beginning = child.stdout.read(1)
        victim.send(harm)
        rest, said = child.communicate(timeout=SECONDS)
    assert child.returncode == 0, said
    assert beginning + rest == slow.text
    assert heir.wait_event("request")["method"] == method
    assert "64 tokens" in said


def test_it_comes_again_when_the_server_says(generate, slow, processes):
    address = slow.orchestrator(processes, "--max-answers-per-identity", "1").address
    with answering(generate, address) as first:
        beginning = first.stdout.read(1)
        second = run(*generate, PROMPT, address)
        rest, _ = first.communicate(timeout=SECONDS)
    assert second.stdout == beginning + rest == slow.text
    assert re.search("LIMIT_REACHED: .*; again in 1 s", second.stderr)


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


@pytest.mark.parametrize("prompt", [PROMPT, 'def tab():\n    return "\\t%s"\n\ndef größe():'])
async def test_grpcurl_gets_the_text_that_python_gets(mesh, client, prompt):
    expected = await answer(client, prompt, temperature=0, max_tokens=16)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = run(
        str(EXAMPLES / "grpcurl.sh"),
        mesh.orchestrator.address,
        prompt,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0, done.stderr
    assert "specmesh.v1.GenerationService" in done.stdout.splitlines()
    whole = json.loads(done.stdout[done.stdout.rindex('{\n  "started"') :])
    assert whole["chunk"]["text"] == expected.text

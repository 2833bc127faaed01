"""A whole mesh of real processes."""

import asyncio
import json
import os
import re
import shutil
import signal
import sys
from dataclasses import replace

import psutil
import pytest

from specmesh.cli.local.cores import available, place
from specmesh.cli.local.mesh import LocalMesh, MeshOptions
from specmesh.cli.local.models import RealModels, WaitingModels
from specmesh.cli.local.traces import Keep, TraceKeeping
from specmesh.client import AsyncClient
from specmesh.traces.store.query import Query
from specmesh.traces.store.reader import StoreReader
from specmesh.traces.summary import Outcome

PROMPT = "def read(self, path):\n    return self.path\n\ndef write(self, path):\n"


@pytest.fixture
def options(target_model):
    return MeshOptions(
        models=RealModels(target_model, ("prompt-lookup",)), num_verifiers=2, drain_s=1
    )


def ask(client, strategy, num_tokens=32, **options):
    return client.generate(
        PROMPT,
        temperature=0,
        max_tokens=num_tokens,
        strategy=strategy,
        ignore_end_of_text=True,
        **options,
    )


def test_only_models_that_compute_get_cores_of_their_own(options, tmp_path):
    waiting = WaitingModels(target_ms=40, drafter_ms=1, acceptance=0.8)

    def placement(options):
        return LocalMesh(options, tmp_path, print).placement

    assert placement(options) == place(available(), num_verifiers=2, threads=1)
    assert placement(replace(options, models=waiting)) == place((), num_verifiers=2, threads=1)


async def test_a_mesh_answers_and_a_stream_outlives_its_orchestrator(
    forked, options, tmp_path, no_process_left
):
    reports = asyncio.Queue()
    async with LocalMesh(options, tmp_path, reports.put_nowait) as mesh:
        assert sorted(mesh.pids) == ["drafter", "orchestrator", "redis", "verifier-0", "verifier-1"]
        async with AsyncClient(mesh.address) as client:
            whole = (await ask(client, "autoregressive", num_tokens=64)).text
            stream = ask(client, "speculative", num_tokens=64)
            texts = []
            async for chunk in stream:
                texts.append(chunk.text)
                if len(texts) == 2:
                    os.kill(mesh.pids["orchestrator"], signal.SIGKILL)
            # A pause of the machine may keep the store from an answer, but not from those after it.
            later = [(await ask(client, "speculative", num_tokens=8)).resumable for _ in range(3)]
        assert "".join(texts) == whole
        assert stream.result.num_resumes == 1
        assert stream.result.resumable or all(later)
        while "orchestrator died" not in await reports.get():
            pass  # a busy machine has more to tell
    assert sorted(log.name for log in tmp_path.iterdir()) == [
        "drafter.log",
        "orchestrator.log",
        "redis.log",
        "verifier-0.log",
        "verifier-1.log",
    ]


@pytest.fixture
def greedy_model(target_model, tmp_path):
    """Folder of a model whose author recommends the likeliest token."""
    folder = shutil.copytree(target_model, tmp_path / "model", copy_function=os.link)
    file = folder / "generation_config.json"
    asked = json.loads(file.read_text()) | {"top_k": 1}
    file.unlink()
    file.write_text(json.dumps(asked))
    return str(folder)


async def test_up_serves_until_interrupted_keeps_traces_and_leaves_nothing(greedy_model, tmp_path):
    template, store = tmp_path / "template.jinja", tmp_path / "traces.sqlite"
    template.write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    up = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from specmesh.cli.main import main; main()"),
        *("up", "--port", "0", "--target", greedy_model, "--drafter", "random"),
        *("--generation-config", "auto"),
        *("--chat-template", str(template), "--trace", "all", "--store", str(store)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(180):
            address = None
            while not address:
                address = re.search(
                    r"orchestrator +([\d.]+:\d+)", (await up.stdout.readline()).decode()
                )
            children = psutil.Process(up.pid).children(recursive=True)
            assert len(children) == 6
            commands = [" ".join(child.cmdline()) for child in children]
            # Redis alone has its socket there: a URL may hold a password.
            assert sum("redis.sock" in command for command in commands) == 1
            async with AsyncClient(address[1]) as client:
                said = (await ask(client, "speculative", lookahead=4)).text
                assert said
                by_author = client.generate(PROMPT, max_tokens=32, ignore_end_of_text=True)
                assert (await by_author).text == said
                answer = client.chat([{"role": "user", "content": PROMPT}], max_tokens=2)
                assert (await answer).token_ids
            while len(traces := kept(store)) < 3:  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.1)
            up.send_signal(signal.SIGINT)
            said, _ = await up.communicate()
    finally:
        if up.returncode is None:  # the test failed: take the mesh along
            up.kill()
    assert up.returncode == 0
    assert said.decode().endswith("the mesh is down\n")
    assert not any(child.is_running() for child in children)
    by_default, asked = [each for each in traces if each.num_tokens == 32]
    assert (by_default.strategy, asked.strategy) == ("auto", "speculative")
    assert by_default.outcome is asked.outcome is Outcome.OK
    assert (asked.num_missing, asked.nodes) == (0, ("drafter", "orchestrator", "verifier-0"))


def kept(store):
    with StoreReader(store) as reader:
        return reader.select(Query())


async def test_a_mesh_whose_traces_cannot_be_kept_answers_all_the_same(forked, options, tmp_path):
    (tmp_path / "file").write_text("x" * 2000)
    keeping = TraceKeeping(Keep.ALL, tmp_path / "file")
    reports = []
    options = replace(options, traces=keeping, num_verifiers=1)
    async with LocalMesh(options, tmp_path, reports.append) as mesh:
        assert "traces" not in mesh.pids
        async with AsyncClient(mesh.address) as client:
            assert (await ask(client, "autoregressive", num_tokens=4)).text
    # On a busy machine it is told before that something is still starting.
    assert any("traces are not collected" in told and "not a database" in told for told in reports)

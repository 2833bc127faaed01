"""A whole mesh of real processes."""

import asyncio
import json
import os
import re
import signal
import sys

import psutil
import pytest

from specmesh.cli.local.mesh import LocalMesh, MeshOptions
from specmesh.cli.local.models import RealModels
from specmesh.client import Client

PROMPT = "def read(self, path):\n    return self.path\n\ndef write(self, path):\n"


@pytest.fixture
def options(target_model):
    return MeshOptions(
        models=RealModels(target_model, ("prompt-lookup",)), num_verifiers=2, drain_s=1
    )


def ask(client, strategy, num_tokens=32):
    return client.generate(
        PROMPT,
        temperature=0,
        max_tokens=num_tokens,
        strategy=strategy,
        ignore_end_of_text=True,
    )


async def test_a_mesh_answers_and_a_stream_outlives_its_orchestrator(
    options, tmp_path, no_process_left
):
    reports = asyncio.Queue()
    async with LocalMesh(options, tmp_path, reports.put_nowait) as mesh:
        assert sorted(mesh.pids) == ["drafter", "orchestrator", "redis", "verifier-0", "verifier-1"]
        (socket,) = re.findall(r"unix://(\S+)", mesh.addresses["redis"])
        for name in mesh.pids.keys() - {"redis"}:  # a URL may hold a password
            assert socket not in " ".join(psutil.Process(mesh.pids[name]).cmdline())
        async with Client(mesh.address) as client:
            whole = await ask(client, "autoregressive", num_tokens=64).text()
            stream = ask(client, "speculative", num_tokens=64)
            texts = []
            async for chunk in stream:
                texts.append(chunk.text)
                if len(texts) == 2:
                    os.kill(mesh.pids["orchestrator"], signal.SIGKILL)
        assert "".join(texts) == whole
        assert stream.result.num_resumes == 1
        assert "orchestrator died" in await reports.get()
    assert sorted(log.name for log in tmp_path.iterdir()) == [
        "drafter.log",
        "orchestrator.log",
        "redis.log",
        "verifier-0.log",
        "verifier-1.log",
    ]


async def test_up_serves_until_interrupted_and_leaves_nothing(target_model):
    up = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from specmesh.cli.main import main; main()"),
        *("up", "--port", "0", "--target", target_model, "--drafter", "random"),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(60):
            address = None
            while not address:
                address = re.search(
                    r"orchestrator +([\d.]+:\d+)", (await up.stdout.readline()).decode()
                )
            children = psutil.Process(up.pid).children(recursive=True)
            assert len(children) == 5
            async with Client(address[1]) as client:
                assert await ask(client, "speculative").text()
            up.send_signal(signal.SIGINT)
            said, _ = await up.communicate()
    finally:
        if up.returncode is None:  # the test failed: take the mesh along
            up.kill()
    assert up.returncode == 0
    assert said.decode().endswith("the mesh is down\n")
    assert not any(child.is_running() for child in children)


async def test_demo_compares_and_traces_and_its_stdout_is_one_json_object(
    target_model, tmp_path, no_process_left
):
    prompts = tmp_path / "prompts.json"
    prompts.write_text(json.dumps([{"text": PROMPT}, {"text": "import os\nimport "}]))
    demo = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from specmesh.cli.main import main; main()"),
        *("demo", "--json", "--target", target_model, "--drafter", "prompt-lookup"),
        *("--prompts", str(prompts), "--tokens", "16"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, shown = await asyncio.wait_for(demo.communicate(), 120)
    assert demo.returncode == 0
    assert shown.decode().count("temperature 0.8, seed ") == 2, "the answers to be read"
    summary = json.loads(said)
    assert summary["identical"] is True
    assert summary["prompts"] == 2
    assert summary["speedup"] > 0
    assert 0 <= summary["acceptance"] <= 1
    assert set(summary["tokens_per_s"]) >= {"autoregressive", "speculative"}
    assert [each["temperature"] for each in summary["temperatures"]] == [0.0, 0.8]
    assert all(0 <= each["repeated_share"] <= 1 for each in summary["temperatures"])
    assert summary["traced_temperature"] == 0.8
    nodes = {node["node"]["instance"]: node for node in summary["breakdown"]["nodes"]}
    assert nodes["verifier-0"]["num_calls"] > 0
    assert nodes["verifier-0"]["forward_ms"] > 0
    assert {"orchestrator", "drafter"} <= set(nodes)
    assert sum(node["share"] for node in nodes.values()) == pytest.approx(1)

"""``specmesh demo`` as a real process."""

import asyncio
import io
import json
import sys

import pytest
from rich.console import Console

from specmesh.cli.local.mesh import MeshOptions
from specmesh.cli.local.models import RealModels
from specmesh.tools.demo.course import Demo
from specmesh.tools.kit.bench import Surroundings

PROMPT = "def read(self, path):\n    return self.path\n\ndef write(self, path):\n"


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
    # Drafts need not pay for answers as short as these.
    assert summary["acceptance"] is None or 0 <= summary["acceptance"] <= 1
    assert set(summary["tokens_per_s"]) >= {"autoregressive", "speculative"}
    assert [each["temperature"] for each in summary["temperatures"]] == [0.0, 0.8]
    assert all(0 <= each["repeated_share"] <= 1 for each in summary["temperatures"])
    assert summary["traced_temperature"] == 0.8
    nodes = {node["node"]["instance"]: node for node in summary["breakdown"]["nodes"]}
    assert nodes["verifier-0"]["num_calls"] > 0
    assert nodes["verifier-0"]["forward_ms"] > 0
    # The drafter is among them only if the answer waited for a draft, which needn't pay for an
    # answer as short as this.
    assert (
        {"orchestrator", "verifier-0"}
        <= set(nodes)
        <= {"", "orchestrator", "verifier-0", "drafter"}
    )
    assert sum(node["share"] for node in nodes.values()) == pytest.approx(1)


def test_a_line_of_ours_does_not_stand_behind_half_a_line_of_an_answer(tmp_path):
    shown = io.StringIO()
    surroundings = Surroundings(tmp_path, Console(file=shown))
    demo = Demo(["x"], 1, MeshOptions(models=RealModels("target", ("ngram",))), surroundings)
    demo._write("half a", style="cyan")
    demo.say("one: warning: odd")
    demo.say("two: warning: odd")
    assert shown.getvalue() == "half a\none: warning: odd\ntwo: warning: odd\n"

"""A profile of a running mesh, through its own RPCs, and the choice that follows."""

import json

import pytest
from typer.testing import CliRunner

from specmesh.cli.local.process import StartError
from specmesh.tools.profile.__main__ import app
from specmesh.tools.profile.measure.orchestrator import serving
from specmesh.tools.profile.measure.replicas import connected
from specmesh.tools.profile.run import ProfilePlan, measure


async def test_a_mesh_is_measured_and_a_strategy_chosen(mesh, client, prompts, tmp_path):
    plan = ProfilePlan(prompts[:2], (0.0,), 8, seconds=1.0, seed=1)
    said = []
    async with connected(mesh.verifiers[0].address, mesh.drafter.address) as replicas:
        profile = await measure(replicas, client, plan, said.append)
    assert profile.models["target"].threads == 1
    assert profile.costs.target.ms is not None
    assert min(profile.costs.contention.target, profile.costs.contention.drafter) >= 1
    assert all(1 <= each.tokens <= 1 + each.nodes for each in profile.acceptance)
    assert all(each.forwards[0].tokens >= 1 for each in profile.samples["target"])
    assert {each.streams for each in profile.costs.observed} == {1, 8}
    file = tmp_path / "profile.json"
    file.write_text(profile.to_json())
    shown = CliRunner().invoke(app, ["choose", str(file), "--streams", "8", "--json"])
    found = json.loads(shown.stdout)
    assert found["chosen"] == max(found["of"], key=lambda each: each["tokens_per_s"])
    assert {each["strategy"] for each in found["of"]} >= {"autoregressive", "speculative", "tree"}
    explained = CliRunner().invoke(app, ["choose", str(file), "--explain"]).stdout
    assert "--strategy" in explained.splitlines()[-1]
    assert "autoregressive" in explained


def test_an_orchestrator_that_is_not_there_is_named_before_anything_is_measured(mesh):
    verifier = ("--verifier", mesh.verifiers[0].address)
    done = CliRunner().invoke(app, ["mesh", *verifier, "--orchestrator", "127.0.0.1:1"])
    assert done.exit_code != 0
    assert "the orchestrator is at 127.0.0.1:1" in done.stderr
    assert "settings" not in done.stderr


async def test_an_orchestrator_of_another_target_is_refused(mesh, client):
    async with connected(mesh.verifiers[0].address, None) as replicas:
        async with serving(client, mesh.orchestrator.address, replicas.verifier):
            pass
        replicas.verifier.info.weights_digest = "of another"
        with pytest.raises(StartError, match="serves another target"):
            async with serving(client, mesh.orchestrator.address, replicas.verifier):
                pass


async def test_a_replica_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr("specmesh.tools.profile.measure.replicas.REACH_SECONDS", 0.2)
    with pytest.raises(StartError, match=r"verifier at 127\.0\.0\.1:1: "):
        async with connected("127.0.0.1:1", None):
            pass

"""Heads in verifiers: the target's own text without a drafter, and whose heads are refused."""

import json

import pytest
import torch
from tests.e2e.answers import LONG, all_of, answer, disturbed, said
from tests.inference.random_heads import save_random_eagle3

from specmesh import models
from specmesh.client import AcceptanceMode, AsyncClient
from specmesh.inference.models.heads.folder import HeadsConfig, save_heads

HEADS = {"strategy": "heads", "max_tokens": 32, "seed": 11}


def write_heads(folder, digest):
    """Medusa heads as they are before any training, for the shipped target."""
    shipped = json.loads((models.path(models.TARGET) / "config.json").read_text())
    config = HeadsConfig(
        kind="medusa",
        target_digests={"float32": digest},
        hidden_size=shipped["hidden_size"],
        embedding_size=shipped["hidden_size"],
        vocab_size=shipped["vocab_size"],
        inner_size=0,
        max_depth=4,
    )
    save_heads(config, config.network(), None, folder)
    return ("--heads", str(folder))


def write_eagle3(folder, digest):
    """A random head that attends to the text, for the shipped target."""
    sizes = {"num_heads": 5, "num_kv_heads": 1, "head_dim": 64, "max_position_embeddings": 1024}
    save_random_eagle3(models.path(models.TARGET), folder, torch.arange(1024), **sizes)
    assert digest in (folder / "config.json").read_text()
    return ("--heads", str(folder))


@pytest.fixture(scope="module")
def digest(mesh):
    return mesh.verifiers[0].wait_event("model ready")["weights_digest"]


@pytest.fixture(scope="module", params=[write_heads, write_eagle3], ids=["medusa", "eagle3"])
def write(request):
    """Writes heads of a kind."""
    return request.param


@pytest.fixture(scope="module")
def headed(mesh, digest, write, tmp_path_factory):
    """A replica with heads, which lives as long as the mesh."""
    flags = write(tmp_path_factory.mktemp("heads"), digest)
    return mesh.processes.verifier("--redis-url", mesh.redis_url, *flags)


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.8, "top_p": 0.9}])
async def test_a_mesh_without_drafters_gives_the_same_answer(
    mesh, headed, processes, client, prompts, sampling
):
    orchestrator = processes.orchestrator([headed], [], "--redis-url", mesh.redis_url)
    num_verified_tokens = 0
    async with AsyncClient(orchestrator.address) as drafterless:
        for prompt in prompts[:2]:
            alone, *drafted = await all_of(
                answer(client, prompt, **HEADS | sampling | {"strategy": "autoregressive"}),
                answer(drafterless, prompt, **HEADS | sampling),
                answer(drafterless, prompt, **HEADS | sampling, width=24),
            )
            assert [said(result) for result in drafted] == [said(alone)] * 2
            num_verified_tokens += sum(result.stats.num_verified_tokens for result in drafted)
    # Not each answer's: untrained heads are rarely right, and the mesh soon stops asking them.
    assert num_verified_tokens > 0


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.8, "top_p": 0.9}])
async def test_a_drafter_beside_any_heads_gives_the_same_answer(
    mesh, headed, processes, client, prompts, sampling
):
    orchestrator = processes.orchestrator([headed], [mesh.drafter], "--redis-url", mesh.redis_url)
    ways = [
        {"strategy": "heads"},
        {"strategy": "heads-and-drafter"},
        # With a lookahead, drafts are made also where they do not pay: beside other answers.
        {"strategy": "heads-and-drafter", "width": 24, "lookahead": 4},
        {"strategy": "dsi"},
        {"strategy": "auto"},
    ]
    async with AsyncClient(orchestrator.address) as both:
        alone, *drafted = await all_of(
            answer(client, prompts[3], **HEADS | sampling | {"strategy": "autoregressive"}),
            *(answer(both, prompts[3], **HEADS | sampling | way) for way in ways),
        )
    assert [said(result) for result in drafted] == [said(alone)] * len(ways)
    assert sum(result.stats.num_accepted_tokens for result in drafted) > 0


async def test_a_mesh_without_drafters_answers_in_rejection_mode(headed, processes, mesh, prompts):
    orchestrator = processes.orchestrator([headed], [], "--redis-url", mesh.redis_url)
    async with AsyncClient(orchestrator.address) as drafterless:
        result = await answer(
            drafterless, prompts[0], **HEADS, acceptance_mode=AcceptanceMode.REJECTION
        )
    assert 0 < len(result.token_ids) <= 32
    assert result.stats.num_verified_tokens > 0


async def test_a_replica_that_dies_leaves_the_answer_to_one_without_heads(
    mesh, processes, client, prompts, digest, write, tmp_path
):
    flags = ("--redis-url", mesh.redis_url)
    victim = processes.verifier(*flags, *write(tmp_path, digest))
    orchestrator = processes.orchestrator([victim, mesh.verifiers[0]], [], *flags)
    undisturbed = await answer(client, prompts[0], **LONG)

    async def kill():
        victim.kill()

    async with AsyncClient(orchestrator.address) as both:
        result = await disturbed(both, prompts[0], kill, **LONG, strategy="heads")
    assert said(result) == said(undisturbed)


def test_heads_of_another_target_end_the_process_with_a_reason(processes, digest, tmp_path):
    other = digest[::-1]
    refused = processes.verifier(*write_heads(tmp_path, other))
    reason = refused.wait_event("cannot start", 60)["reason"]
    assert "--heads" in reason
    assert "are for another target" in reason
    assert digest in reason
    assert refused.wait_exit() == 1


def test_a_folder_without_heads_ends_the_process_with_a_reason(processes, tmp_path):
    refused = processes.verifier("--heads", str(tmp_path))
    reason = refused.wait_event("cannot start", 60)["reason"]
    assert f"--heads: cannot load heads from '{tmp_path}'" in reason
    assert refused.wait_exit() == 1


def test_a_backend_that_has_no_use_for_heads_says_so(processes, tmp_path):
    refused = processes.service("verifier", "--backend", "empty", "--heads", str(tmp_path))
    reason = refused.wait_event("cannot start", 60)["reason"]
    assert "--heads: backend 'empty' does not use it" in reason
    assert refused.wait_exit() == 1

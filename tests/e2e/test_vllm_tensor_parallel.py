"""A target in two parts, in processes of vLLM's, behind an orchestrator."""

import asyncio
import shutil
import signal

import psutil
import pytest
import torch
from tests.e2e.answers import LONG, all_of, answer, said
from tests.vllm import address_of, needs_vllm, start_vllm, workers_of
from transformers import LlamaConfig, LlamaForCausalLM

from specmesh import models
from specmesh.client import AsyncClient

pytestmark = needs_vllm

SOON_SECONDS = 20.0
END_SECONDS = 5.0


def save_target(folder):
    """Of random weights, since the shipped target's heads can't be halved; with its tokenizer."""
    shutil.copytree(models.path(models.TARGET), folder)
    (folder / "model.safetensors").unlink()
    torch.manual_seed(21)
    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=128,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=1024,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("divided") / "target"
    save_target(folder)
    return folder


@pytest.fixture(scope="module")
def divided(folder):
    """The last test of this file kills it."""
    replica = start_vllm(
        "--cache-bytes", str(8 << 20), "--tensor-parallel-size", "2", folder=folder
    )
    yield replica
    replica.kill()


async def test_a_target_in_two_parts_gives_the_same_answers(processes, prompts, folder, divided):
    whole = processes.service("verifier", "--model", str(folder))
    drafter = processes.drafter("--backend", "prompt-lookup", "--tokenizer", str(folder))
    mesh = processes.orchestrator([whole], [drafter])
    assert mesh.address
    address_of(divided)
    tp = processes.orchestrator([divided], [drafter])
    async with AsyncClient(mesh.address) as ours, AsyncClient(tp.address) as client:
        for sampling in ({"temperature": 0}, {"temperature": 0.3, "seed": 9}):
            options = {**sampling, "max_tokens": 48, "ignore_end_of_text": True}
            expected = await answer(ours, prompts[0], **options, strategy="autoregressive")
            told = await all_of(
                *(
                    answer(client, prompts[0], **options, strategy=strategy)
                    for strategy in ("autoregressive", "speculative", "dsi", "tree")
                )
            )
            assert [said(each) for each in told] == [said(expected)] * len(told)


def used_s(worker):
    return sum(worker.cpu_times()[:2])


async def test_no_process_outlives_its_killed_replica(processes, prompts, folder, divided):
    """Not even one in the middle of a forward pass, which waits for what the other computes."""
    address_of(divided)
    drafter = processes.drafter("--backend", "prompt-lookup", "--tokenizer", str(folder))
    tp = processes.orchestrator([divided], [drafter])
    stopped, waiting = (psutil.Process(pid) for pid in workers_of(divided.pid))
    stopped.suspend()
    async with AsyncClient(tp.address) as client:
        reading = asyncio.ensure_future(answer(client, prompts[0], **LONG))
        try:
            idle_s = used_s(waiting)
            async with asyncio.timeout(SOON_SECONDS):
                # Between two steps it would sleep after a second.
                while used_s(waiting) < idle_s + 2:
                    assert not reading.done()
                    await asyncio.sleep(0.05)
            divided.send(signal.SIGKILL)
            stopped.kill()
            await asyncio.to_thread(waiting.wait, END_SECONDS)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

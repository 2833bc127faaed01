"""vLLM in several processes: what they say, how they end, and which options they take."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import grpc
import numpy as np
import pytest
from tests.conformance.calls import verdict_on
from tests.conformance.cases import chains
from tests.forks import surroundings
from tests.vllm import PYTHON, address_of, needs_ray, needs_vllm, start_vllm, workers_of
from transformers import LlamaConfig

from specmesh.inference.models.transformers_model import TransformersModel

pytestmark = needs_vllm

CACHE = ("--cache-bytes", str(8 << 20))
SOON_SECONDS = 20.0
VOCAB_SIZE = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory, save_tiny) -> Path:
    """A model that can be halved, of random weights."""
    folder = tmp_path_factory.mktemp("halved") / "llama"
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=128,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=512,
        initializer_range=0.3,
        eos_token_id=0,
    )
    save_tiny(folder, config)
    return folder


async def told(process, asked):
    async with grpc.aio.insecure_channel(address_of(process)) as channel:
        return await asyncio.gather(*(verdict_on(channel, case, VOCAB_SIZE) for case in asked))


TENSOR = ("--tensor-parallel-size", "2")
RAY = pytest.param(
    (*TENSOR, "--engine-options", "--distributed-executor-backend ray"), id="ray", marks=needs_ray
)


@pytest.fixture(autouse=True)
def _no_cluster_but_its_own(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "local")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(TENSOR, id="tensor"),
        pytest.param(("--engine-options", "--pipeline-parallel-size 2"), id="pipeline"),
        RAY,
    ],
)
async def test_two_processes_say_what_our_engine_says_and_their_loss_ends_the_replica(
    folder, options
):
    """Also while nobody waits for them."""
    model = TransformersModel.load(str(folder), dtype="float32", device="cpu")
    texts = np.random.default_rng(9).integers(0, VOCAB_SIZE, (4, 300)).tolist()
    asked = [*chains(model, texts, 48, "greedy"), *chains(model, texts, 48, "coupled")]
    process = start_vllm(*CACHE, *options, folder=folder)
    try:
        assert await told(process, asked) == [case.expected for case in asked]
        workers = workers_of(process.pid)
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGKILL)
        reason = process.wait_event("broken", SOON_SECONDS)["reason"]
        assert "one of vLLM's processes has died" in reason
        assert await asyncio.to_thread(process.wait_exit) == 1
    finally:
        process.kill()


@pytest.mark.parametrize("options", [pytest.param(TENSOR, id="tensor"), RAY])
async def test_ctrl_c_drains_before_vllms_processes_end(folder, options):
    """A terminal sends it to all processes alike."""
    process = start_vllm(*CACHE, *options, folder=folder)
    try:
        address_of(process)
        for pid in workers_of(process.pid):
            os.kill(pid, signal.SIGINT)
        process.send(signal.SIGINT)
        assert await asyncio.to_thread(process.wait_exit) == 0
        assert "broken" not in process.output
    finally:
        process.kill()


OPTIONS = """
import sys
from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.vllm.core import Core
from specmesh.inference.models.vllm.options import CoreOptions
for cache_bytes, given in ((1000000, ""), *((8 << 20, each) for each in sys.argv[2:])):
    try:
        core = Core(
            CoreOptions(sys.argv[1], "float32", "cpu", 512, cache_bytes, 64, 512, 256, 1, 1, given)
        )
        print(f"{core.max_calls} calls share a step")
    except ModelNotLoadable as error:
        print(error)
"""


def test_options_that_it_does_not_take_are_named_and_others_taken(folder):
    """Without a process for each, since to import vLLM takes long."""
    refused = ("--quantisation fp8", "--max-num-seqs few", "--max-model-len 99")
    done = subprocess.run(
        [str(PYTHON), "-c", OPTIONS, str(folder), *refused, "--max-num-seqs 8"],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env=surroundings(),
    )
    assert "--cache-bytes is too small for a context of 512 tokens" in done.stdout
    assert "--engine-options: unrecognized arguments: --quantisation fp8" in done.stdout
    assert "--engine-options: argument --max-num-seqs: invalid int value: 'few'" in done.stdout
    assert "--engine-options: --max-model-len is set by specmesh" in done.stdout
    assert "\n8 calls share a step" in done.stdout

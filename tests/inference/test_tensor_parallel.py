"""A target divided among the processes that torchrun starts."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import grpc
import numpy as np
import psutil
import pytest
from tests.e2e.processes import START_SECONDS, Process, Processes
from tests.forks import nursery, surroundings
from tests.inference.drafting import bushy, grow
from tests.ports import free_port
from transformers import AutoConfig, Phi3Config

from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.tree import EMPTY
from specmesh.inference.model import Cancellation, ModelNotLoadable
from specmesh.inference.models.tensor_parallel import Ranks
from specmesh.inference.models.transformers_model import TransformersModel
from specmesh.mesh.v1alpha1 import (
    model_service_pb2,
    model_service_pb2_grpc,
    verifier_pb2,
    verifier_pb2_grpc,
)
from specmesh.serving.codec.wire import write_sampling, write_tree
from specmesh.verifier.__main__ import VerifierService, VerifierSettings

pytestmark = pytest.mark.cpu_only("ranks that speak gloo")


PATIENCE_S = 30
SHARED = [int(token) for token in np.random.default_rng(3).integers(1, 60, 37)]
SAMPLINGS = [Sampling(temperature=0), Sampling(seed=5), Sampling(seed=6), Sampling(temperature=0)]

Group = Callable[[], AbstractContextManager[tuple[Process, dict[int, psutil.Process]]]]


@pytest.fixture
def group(folders: dict[str, Path]) -> Group:
    """Starts the verifier that torchrun makes of two processes; gives torchrun and the ranks."""

    @contextmanager
    def group() -> Iterator[tuple[Process, dict[int, psutil.Process]]]:
        torchrun = start_ranks(folders["llama"])
        ranks: dict[int, psutil.Process] = {}
        try:
            assert torchrun.address
            ranks = find_ranks()
            yield torchrun, ranks
        finally:
            for rank in (ranks or find_ranks()).values():
                with suppress(psutil.NoSuchProcess):
                    rank.kill()
            torchrun.kill()

    return group


def start_ranks(folder: Path) -> Process:
    arguments = ["--standalone", "--nproc-per-node", "2", "-m", "specmesh.verifier", "--port", "0"]
    arguments += ["--model", str(folder), "--cache-bytes", str(1 << 20)]
    # Where there is a GPU, transformers would put the ranks there.
    environment = {**surroundings(), "CUDA_VISIBLE_DEVICES": ""}
    torchrun = nursery().start("torch.distributed.run", arguments, environment)
    return Process("torchrun", torchrun)


def find_ranks() -> dict[int, psutil.Process]:
    ranks = {}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "RANK" in (environment := process.environ()):
                ranks[int(environment["RANK"])] = process
    return ranks


async def written(channel, drafter: TransformersModel, session: int) -> list[list[int]]:
    """What each of some rounds adds to a session's text, accepted nodes first."""
    stub = verifier_pb2_grpc.VerifierServiceStub(channel)
    sampling, text, answers = SAMPLINGS[session], [*SHARED, session + 1], []
    for _ in range(6):
        # A branching tree, half right: by the target itself, which has not seen the first tokens.
        sequence = drafter.open(text[4:], Cancellation())
        *_, level = grow(sequence, EMPTY, text, bushy((0,), 3, 3, 2), sampling)
        sequence.close(())
        message = verifier_pb2.VerifyRequest(
            prefix={"token_ids": text},
            tree=write_tree(level.tree, {}),
            sampling=write_sampling(sampling),
        )
        response = await stub.Verify(message, timeout=PATIENCE_S)
        answers.append([*response.accepted_nodes, response.next_token_id])
        text += [*level.tree.tokens_on(response.accepted_nodes), response.next_token_id]
    return answers


async def all_written(channel, drafter: TransformersModel) -> list[list[list[int]]]:
    sessions = range(len(SAMPLINGS))
    return await asyncio.gather(*(written(channel, drafter, session) for session in sessions))


async def test_two_ranks_say_what_one_says_and_end_together(load, serve, group):
    with group() as (torchrun, ranks):
        async with grpc.aio.insecure_channel(torchrun.address) as channel:
            divided = await all_written(channel, load())
            info = await model_service_pb2_grpc.ModelServiceStub(channel).GetModel(
                model_service_pb2.GetModelRequest(), timeout=PATIENCE_S
            )
            assert info.model.weights_digest == load().description.weights_digest
        torchrun.send(signal.SIGTERM)  # which it sends to every rank
        torchrun.wait_exit()
        stopped = [line for line in torchrun.output.splitlines() if '"stopped"' in line]
        assert [json.loads(line)["exit_status"] for line in stopped] == [0, 0]
        assert sorted(ranks) == [0, 1]
        assert not any(rank.is_running() for rank in ranks.values())
    async with serve(load()) as channel:
        assert divided == await all_written(channel, load())
    assert any(len(answer) > 1 for answers in divided for answer in answers)


async def test_calls_of_a_group_that_lost_a_rank_are_unavailable_and_all_end(load, group):
    with group() as (torchrun, ranks):
        async with grpc.aio.insecure_channel(torchrun.address) as channel:
            await written(channel, load(), 0)
            ranks[1].kill()
            with pytest.raises(grpc.aio.AioRpcError) as lost:
                await written(channel, load(), 0)
        assert lost.value.code() is grpc.StatusCode.UNAVAILABLE
        assert torchrun.wait_exit() != 0
        assert not any(rank.is_running() for rank in ranks.values())


def test_ranks_refuse_what_one_process_refuses(tmp_path, save_tiny):
    """Each of them sees it: what they compute together is the same."""
    short, long = [1.0] * 4, [1.5, 2.0, 8.0, 60.0]
    factors = {"rope_theta": 10000.0, "factor": 4.0, "short_factor": short, "long_factor": long}
    config = Phi3Config(
        vocab_size=60,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        original_max_position_embeddings=32,
        rope_parameters={"rope_type": "longrope", **factors},
        initializer_range=0.3,
        **{f"{role}_token_id": 0 for role in ("bos", "eos", "pad")},
    )
    save_tiny(tmp_path, config)
    together = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    with Processes() as processes:
        ranks = [
            processes.service(
                "verifier",
                *("--model", str(tmp_path)),
                **{"RANK": rank, "LOCAL_RANK": rank, "CUDA_VISIBLE_DEVICES": "", **together},
            )
            for rank in ("0", "1")
        ]
        for rank in ranks:
            refusal = rank.wait_event("cannot start", START_SECONDS)["reason"]
            assert "another session is at the end of its context" in refusal
            assert rank.wait_exit() == 1


@pytest.mark.parametrize(
    ("architecture", "count", "reason"),
    [
        ("llama", 3, "has 4 attention heads that share 2 KV heads: .* among 3 ranks"),
        ("gpt2", 2, "no tp_plan for 'gpt2'"),
    ],
)
def test_model_that_cannot_be_divided_is_refused(folders, monkeypatch, architecture, count, reason):
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda: None)
    with pytest.raises(ModelNotLoadable, match=reason):
        TransformersModel.load(
            str(folders[architecture]), dtype="float32", device="cpu", ranks=Ranks(0, count)
        )


def test_device_that_transformers_would_not_take_is_refused(folders):
    config = AutoConfig.from_pretrained(folders["llama"])
    with pytest.raises(ModelNotLoadable, match="not on mps"):
        Ranks(0, 2).division("llama", config, "mps")


def test_backend_without_weights_is_refused():
    service = VerifierService(VerifierSettings(backend="empty"), Ranks(0, 2))
    with pytest.raises(ModelNotLoadable, match="'empty' divides no target among 2 ranks"):
        service.load()

"""The real services over a simulated model, and calls cancelled in the middle of a forward."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from tests.servers import running_server

from specmesh.decoding.sampling import Sampling
from specmesh.decoding.simulated.hashed import SimulatedDrafter, SimulatedTarget
from specmesh.decoding.trees.tree import EMPTY
from specmesh.drafter.__main__ import DrafterService, DrafterSettings
from specmesh.inference.models.simulated.model import SimulatedModel
from specmesh.inference.service.service import InferenceService
from specmesh.mesh.v1alpha1 import (
    drafter_pb2,
    drafter_pb2_grpc,
    model_service_pb2,
    model_service_pb2_grpc,
    tokens_pb2,
    verifier_pb2,
    verifier_pb2_grpc,
)
from specmesh.serving.codec.wire import read_choices, write_sampling, write_tree
from specmesh.serving.process.command_line import parse
from specmesh.verifier.__main__ import VerifierService, VerifierSettings

GREEDY = write_sampling(Sampling(temperature=0))
PREFIX = list(range(40))
OTHER = list(range(100, 140))
# A prefix seen before takes longer than any test; a new one nothing.
STUCK = {
    "backend": "simulated",
    "simulated_first_ms": 0,
    "simulated_each_ms": 60_000,
    "drain_seconds": 0,
}


@asynccontextmanager
async def running(service: InferenceService) -> AsyncIterator[grpc.aio.Channel]:
    async with (
        running_server(service._settings, service) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        yield channel


async def queued(service: InferenceService, depth: int) -> None:
    async with asyncio.timeout(10):
        while service._engine.queue_depth != depth:  # noqa: ASYNC110 - the queue tells nobody
            await asyncio.sleep(0.001)


@pytest.fixture
async def opened(monkeypatch) -> asyncio.Queue[int]:
    """Tells of each call that the engine takes up, by the length of its prefix."""
    taken: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    really_open = SimulatedModel.open

    def tell_and_open(self, prefix, cancellation, room):
        loop.call_soon_threadsafe(taken.put_nowait, len(prefix))
        return really_open(self, prefix, cancellation, room)

    monkeypatch.setattr(SimulatedModel, "open", tell_and_open)
    return taken


def verify(channel, prefix=PREFIX, timeout=50, depth=0):
    """With ``depth``, heads draft a chain."""
    message = verifier_pb2.VerifyRequest(
        prefix=tokens_pb2.Prefix(token_ids=prefix), tree=write_tree(EMPTY), sampling=GREEDY
    )
    if depth:
        growth = drafter_pb2.TreeGrowth(max_nodes=depth, least_worth=0.5)
        stop = drafter_pb2.DraftStop(slope=1)
        message.next_draft.CopyFrom(verifier_pb2.NextDraft(depth=depth, growth=growth, stop=stop))
    return verifier_pb2_grpc.VerifierServiceStub(channel).Verify(message, timeout=timeout)


async def begin_stuck(channel, opened):
    """A call in the middle of a forward that would take a minute."""
    await verify(channel)
    stuck = verify(channel)
    async with asyncio.timeout(10):
        assert [await opened.get(), await opened.get()] == [len(PREFIX)] * 2
    return stuck


def draft(channel, prefix=PREFIX, depth=1, num_choices=0):
    message = drafter_pb2.DraftRequest(
        prefix=tokens_pb2.Prefix(token_ids=prefix),
        depth=depth,
        sampling=GREEDY,
        num_choices=num_choices,
    )
    return drafter_pb2_grpc.DrafterServiceStub(channel).Draft(message, timeout=50)


async def test_cancelled_verify_frees_its_slot_for_the_next_in_the_queue(opened):
    service = VerifierService(VerifierSettings(**STUCK))
    async with running(service) as channel:
        stuck = await begin_stuck(channel, opened)
        following = verify(channel, OTHER)
        await queued(service, 1)
        began = time.perf_counter()
        stuck.cancel()
        response = await following
        assert time.perf_counter() - began < 5
        assert response.cost.queue_ms > 0


async def test_verify_whose_deadline_runs_out_frees_its_slot():
    async with running(VerifierService(VerifierSettings(**STUCK))) as channel:
        await verify(channel)
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await verify(channel, timeout=0.1)
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await asyncio.wait_for(verify(channel, OTHER), 5)


async def test_cancelled_draft_frees_its_slot_for_the_next_in_the_queue():
    service = DrafterService(DrafterSettings(**STUCK))
    async with running(service) as channel:
        stuck = draft(channel, depth=5)
        assert len((await stuck.read()).token_ids) == 1
        following = draft(channel, OTHER)
        await queued(service, 1)
        began = time.perf_counter()
        stuck.cancel()
        assert len((await following.read()).token_ids) == 1
        assert time.perf_counter() - began < 5


async def test_verify_cancelled_while_heads_draft_frees_its_slot():
    settings = {"backend": "simulated", "simulated_heads_depth": 3, "drain_seconds": 0}
    service = VerifierService(VerifierSettings(**settings, simulated_heads_ms=60_000))
    async with running(service) as channel:
        stuck = verify(channel, depth=3)
        async with asyncio.timeout(10):
            while not service._engine.num_running:  # noqa: ASYNC110 - the engine tells nobody
                await asyncio.sleep(0.001)
        following = verify(channel, OTHER)
        await queued(service, 1)
        stuck.cancel()
        await asyncio.wait_for(following, 5)


async def test_simulated_heads_draft_what_a_drafter_of_their_acceptance_would():
    settings = VerifierSettings(
        backend="simulated", simulated_heads_depth=4, simulated_heads_acceptance=1.0
    )
    target = SimulatedTarget()
    async with running(VerifierService(settings)) as channel:
        response = await verify(channel, depth=9)
    expected, state = [], target.after(target.start, PREFIX)
    for _ in range(5):
        expected.append(target.token(state))
        state = target.after(state, expected[-1:])
    assert [response.next_token_id, *response.next_draft.token_ids] == expected


async def test_cancelled_call_in_the_queue_does_not_wait_for_those_before(opened):
    service = VerifierService(VerifierSettings(**STUCK))
    async with running(service) as channel:
        stuck = await begin_stuck(channel, opened)
        waiting = verify(channel)
        await queued(service, 1)
        waiting.cancel()
        await queued(service, 0)
        assert not stuck.done()
        stuck.cancel()


async def test_server_stops_in_the_middle_of_a_forward(opened):
    service = VerifierService(VerifierSettings(**STUCK))
    async with asyncio.timeout(20), running(service) as channel:
        stuck = await begin_stuck(channel, opened)
        waiting = verify(channel)
        await queued(service, 1)
    ends = await asyncio.gather(stuck, waiting, return_exceptions=True)
    assert all(isinstance(end, BaseException) for end in ends)


async def test_roles_say_what_the_same_settings_say_in_process():
    common = {"backend": "simulated", "simulated_seed": 9, "simulated_vocab_size": 100}
    target = SimulatedTarget(9, 100)
    drafter = SimulatedDrafter(target, acceptance=0.3, runner_up=0.9, salt=4)
    state = target.after(target.start, PREFIX)
    async with running(VerifierService(VerifierSettings(**common))) as channel:
        assert (await verify(channel)).next_token_id == target.token(state)
        info = await model_service_pb2_grpc.ModelServiceStub(channel).GetModel(
            model_service_pb2.GetModelRequest()
        )
        assert (info.model.name, info.model.vocab_size) == ("simulated-target", 100)
    settings = DrafterSettings(
        **common, simulated_acceptance=0.3, simulated_runner_up=0.9, simulated_salt=4
    )
    async with running(DrafterService(settings)) as channel:
        response = await draft(channel, num_choices=2).read()
        choices = read_choices(response.choices, response.entropies, 100)[0]
        assert choices.token_ids == drafter.choices(state)
        assert list(response.token_ids) == [drafter.choices(state)[0]]


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--simulated-acceptance", "1.1"),
        ("--simulated-runner-up", "nan"),
        ("--simulated-salt", "-1"),
        ("--simulated-seed", "18446744073709551616"),
        ("--simulated-vocab-size", "3"),
        ("--simulated-first-ms", "-1"),
        ("--simulated-each-ms", "inf"),
    ],
)
def test_wrong_setting_is_named_and_exits_2(flag, value, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(DrafterSettings, [flag, value], "specmesh drafter")
    assert ended.value.code == 2
    variable = "SPECMESH_DRAFTER__" + flag.removeprefix("--").replace("-", "_").upper()
    assert f"{flag} ({variable}): " in capsys.readouterr().err


def test_settings_come_from_flags_and_environment_alike(monkeypatch):
    monkeypatch.setenv("SPECMESH_VERIFIER__SIMULATED_EACH_MS", "2.5")
    settings = parse(VerifierSettings, ["--backend", "simulated"], "specmesh verifier")
    assert (settings.simulated_first_ms, settings.simulated_each_ms) == (None, 2.5)


@pytest.mark.parametrize("role", ["Verifier", "Drafter"])
def test_simulated_process_leaves_torch_alone(role):
    code = (
        f"from specmesh.{role.lower()}.__main__ import {role}Service, {role}Settings\n"
        f"{role}Service({role}Settings(backend='simulated')).load()\n"
        "import json, sys; print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert {"torch", "transformers"}.isdisjoint(json.loads(done.stdout))

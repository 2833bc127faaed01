"""A mesh serves one target; another one waits, and takes its place once nobody serves it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

import grpc
import pytest
from tests.orchestrator.conftest import Connect, Orchestrated, until
from tests.orchestrator.model import train_tokenizer
from tests.orchestrator.peers import NOT_SERVING, SERVING, Drafter, Hold, Verifier

from specmesh.orchestrator.replicas import target as target_module
from specmesh.serving.errors import error_info
from specmesh.serving.templates.tokenizers import fingerprint
from specmesh.v1 import generation_pb2

OLD, NEW, NEWER = "0a" * 32, "1b" * 32, "2c" * 32
OTHER_JSON = train_tokenizer(280).to_str()


@pytest.fixture(autouse=True)
def _patience(monkeypatch):
    monkeypatch.setattr(target_module, "MOVE_ON_SECONDS", 0.05)


@pytest.fixture
def for_ever(monkeypatch):
    monkeypatch.setattr(target_module, "MOVE_ON_SECONDS", 1e6)


def replica(digest: str, **changes: object) -> Verifier:
    return Verifier(weights_digest=digest, dtype="float32", **changes)


@pytest.fixture
async def join(connect) -> AsyncIterator[Connect]:
    """Connects verifiers, of which the first says what the target is; then the others come up."""
    async with AsyncExitStack() as stack:

        async def join(
            first: Verifier, *others: Verifier, drafters: Sequence[Drafter] = ()
        ) -> Orchestrated:
            for verifier in others:
                await verifier.start()
                stack.push_async_callback(verifier.die)
                await verifier.set_health(NOT_SERVING)
            connecting = asyncio.create_task(connect([first, *others], drafters))
            await asyncio.wait_for(first.told.wait(), 10)
            for verifier in others:
                await verifier.set_health(SERVING)
            return await connecting

        yield join


async def test_replica_with_other_weights_waits_and_is_told_both(join):
    behind = await join(replica(OLD), replica(NEW), replica(OLD))
    old, new, again = behind.mesh.verifiers.peers
    assert behind.mesh.verifiers.ready == [old, again]
    assert new.refusal == (
        "not a replica of 'toy' (float32, digest 0a0a0a0a0a0a) "
        "but 'toy' (float32, digest 1b1b1b1b1b1b): "
        "its weights_digest is '1b1b1b1b1b1b', not '0a0a0a0a0a0a'"
    )


async def test_model_that_waits_is_served_once_the_last_replica_of_the_target_has_left(join):
    fakes = [replica(OLD), replica(NEW), replica(OLD)]
    behind = await join(*fakes)
    old, new, _ = peers = behind.mesh.verifiers.peers
    await fakes[0].die()
    await until(lambda: not old.ready, *peers)
    await asyncio.sleep(0.1)
    assert behind.targets.known.info.weights_digest == OLD  # the third still serves it
    await fakes[2].die()
    await until(lambda: new.ready, *peers)
    assert behind.targets.known.info.weights_digest == NEW
    assert "its weights_digest is '0a" in old.refusal
    await fakes[0].start()
    await until(lambda: old.serving, *peers)
    assert behind.mesh.verifiers.ready == [new]


@pytest.mark.usefixtures("for_ever")
async def test_target_that_may_come_back_is_waited_for(join):
    fakes = [replica(OLD), replica(NEW)]
    behind = await join(*fakes)
    old, new = peers = behind.mesh.verifiers.peers
    await fakes[0].die()
    await until(lambda: not old.ready, *peers)
    assert behind.mesh.verifiers.ready == []
    await fakes[0].start()
    await until(lambda: old.ready, *peers)
    assert new.refusal


@pytest.mark.usefixtures("for_ever")
async def test_target_that_cannot_come_back_is_not_waited_for(join):
    """Every address serves another model by now."""
    fakes = [replica(OLD), replica(NEW)]
    behind = await join(*fakes)
    old, new = peers = behind.mesh.verifiers.peers
    await fakes[0].die()
    fakes[0].info.weights_digest = NEW
    await fakes[0].start()
    await until(lambda: old.ready and new.ready, *peers)
    assert behind.targets.known.info.weights_digest == NEW


async def test_of_several_models_that_wait_the_one_with_most_replicas_is_served(join):
    fakes = [replica(OLD), replica(NEWER), replica(NEW), replica(NEW)]
    behind = await join(*fakes)
    peers = behind.mesh.verifiers.peers
    await fakes[0].die()
    await until(lambda: behind.mesh.verifiers.ready == peers[2:], *peers)
    assert peers[1].refusal.startswith("not a replica of 'toy' (float32, digest 1b1b1b1b1b1b)")


@pytest.mark.usefixtures("for_ever")
async def test_target_is_replaced_once_though_a_third_model_waits_before_it(join, caplog):
    fakes = [replica(OLD), replica(NEW), replica(NEW)]
    behind = await join(*fakes)
    peers = behind.mesh.verifiers.peers
    await fakes[0].die()
    fakes[0].info.weights_digest = NEWER
    await fakes[0].start()
    await until(lambda: behind.mesh.verifiers.ready == peers[1:], *peers)
    assert behind.targets.known.info.weights_digest == NEW
    assert [record.getMessage() for record in caplog.records].count("target replaced") == 1


async def test_drafters_are_judged_by_the_new_target(join):
    changes = {"tokenizer_fingerprint": fingerprint(OTHER_JSON), "vocab_size": 280}
    fakes, drafters = [replica(OLD), replica(NEW, **changes)], [Drafter(), Drafter(**changes)]
    for each in (fakes[1], drafters[1]):
        each.tokenizer_json = OTHER_JSON
    behind = await join(*fakes, drafters=drafters)
    of_old, of_new = peers = behind.mesh.drafters.peers
    assert behind.mesh.drafters.ready == [of_old]
    await fakes[0].die()
    await until(lambda: of_new.ready, *peers, *behind.mesh.verifiers.peers)
    assert behind.mesh.drafters.ready == [of_new]
    assert "tokenizers of target 'toy' and drafter" in of_old.refusal


async def test_answer_begun_with_one_target_is_not_carried_on_by_another(join, serve):
    old, new = replica(OLD), replica(NEW)
    behind = await join(old, new)
    client = await serve(behind)
    old.always = Hold()
    request = generation_pb2.GenerateRequest(
        text="hello", speculation={"strategy": "autoregressive"}
    )
    call = client.Generate(request, timeout=20)
    await asyncio.wait_for(old.arrived.wait(), 10)
    await old.die()
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        async for _ in call:
            pass
    assert failure.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert error_info(failure.value).reason == "TARGET_REPLACED"
    assert new.requests == []
    following = [event async for event in client.Generate(request, timeout=20)]
    assert following[-1].event.HasField("finished")
    assert new.requests

"""A replica that has to compile a request's grammar first is not slow, and not full."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from opentelemetry.context import Context
from tests.orchestrator.model import VOCAB_SIZE, target_only
from tests.orchestrator.peers import START, Verifier, raising

from specmesh.decoding.grammar import Grammar
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.tree import TokenTree
from specmesh.orchestrator.replicas.calls.mesh_calls import Calls
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.latencies.observations import ReplicaCost
from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix
from specmesh.orchestrator.strategies.commands import Verify
from specmesh.serving.errors import ResourceExhaustedStatus

HEDGES = True

PROMPT = tuple(range(1, 41))
PLAIN = Sampling(temperature=0.8, seed=5)
HELD = replace(PLAIN, grammar=Grammar.of_choices(["a"]))
SAID = target_only(PROMPT, 3, PLAIN)
VERIFY = Verify(1, (), TokenTree.chain(SAID[:2]))
SLOW_SECONDS = 0.3


async def verified(mesh, sampling):
    deadline = asyncio.get_running_loop().time() + 30
    prefix = CommittedPrefix("s", PROMPT)
    calls = Calls(RequestContext(mesh, prefix, sampling, vocab_size=VOCAB_SIZE, deadline=deadline))
    verdict = (
        await calls.verifications.verify(VERIFY, calls.command_context(Context(), START))
    ).verdict
    assert (verdict.accepted_nodes, verdict.next_token) == ((1, 2), SAID[2])


def learn(mesh):
    """As after some fast calls."""
    for peer in mesh.verifiers.peers:
        for num_tokens in (1, 8, 64):
            for _ in range(20):
                mesh.latencies.verifications.add(peer.address, num_tokens, 0.002)


async def compiling():
    await asyncio.sleep(SLOW_SECONDS)


@pytest.mark.parametrize(("sampling", "num_called"), [(PLAIN, 2), (HELD, 1)])
async def test_the_first_call_with_a_grammar_is_not_late_while_it_may_be_compiled(
    connect, sampling, num_called
):
    verifiers = [Verifier(), Verifier()]
    mesh = (await connect(verifiers)).mesh
    learn(mesh)
    for verifier in verifiers:
        verifier.faults.append(compiling)
    await verified(mesh, sampling)
    assert sum(bool(verifier.requests) for verifier in verifiers) == num_called


@pytest.mark.parametrize("is_told", [False, True])
async def test_the_time_for_a_grammar_is_not_the_replicas_latency(connect, monkeypatch, is_told):
    verifier = Verifier()
    mesh = (await connect([verifier])).mesh
    learn(mesh)
    verifier.faults.append(compiling)
    verifier.cost.forward_ms = 1
    if is_told:
        verifier.cost.grammar_ms = SLOW_SECONDS * 1e3
    seen = []
    monkeypatch.setattr(mesh.latencies.verifications, "add", lambda *call: seen.append(call) or 1.0)
    await verified(mesh, HELD)
    ((_, _, seconds),) = seen
    assert (seconds >= SLOW_SECONDS) is not is_told


@pytest.mark.parametrize(("reason", "shrinks"), [("QUEUE_FULL", True), ("COMPILER_BUSY", False)])
async def test_a_busy_compiler_leaves_room_for_as_many_answers(
    connect, monkeypatch, reason, shrinks
):
    verifier = Verifier()
    mesh = (await connect([verifier])).mesh
    verifier.faults.extend(raising(ResourceExhaustedStatus(reason, "busy", retry_after_s=0.01)))
    seen = []
    monkeypatch.setattr(mesh.admission, "refused", seen.append)
    await verified(mesh, HELD)
    assert bool(seen) is shrinks
    assert len(verifier.requests) == 2


@pytest.mark.parametrize(("reason", "is_full"), [("QUEUE_FULL", True), ("COMPILER_BUSY", False)])
async def test_a_busy_compiler_keeps_no_calls_away(connect, reason, is_full):
    verifier = Verifier()
    mesh = (await connect([verifier])).mesh
    verifier.faults.extend(raising(ResourceExhaustedStatus(reason, "busy", retry_after_s=0.01)))
    await verified(mesh, HELD)
    (peer,) = mesh.verifiers.peers
    assert (peer.full_until > 0) is is_full


@pytest.mark.parametrize(
    ("told_s", "left_s"), [(0, 2), (1.5, 0.5), (3, 0), (-1, 2), (float("nan"), 0)]
)
def test_a_replica_can_not_have_waited_longer_than_the_call_took(told_s, left_s):
    assert ReplicaCost(grammar_s=told_s).without_grammar(2) == left_s

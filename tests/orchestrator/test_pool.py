"""Which peers work can be sent to, and which of them gets the next call."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from math import nan

import pytest
from tests.orchestrator.conftest import until
from tests.orchestrator.model import train_tokenizer
from tests.orchestrator.peers import NOT_SERVING, SERVING, Drafter, Verifier

from specmesh.mesh.v1alpha1.model_service_pb2 import ForwardTime
from specmesh.orchestrator.replicas.need import Need
from specmesh.orchestrator.replicas.pool import replica_pool
from specmesh.orchestrator.replicas.pool.replica_pool import MAX_READING, Pool
from specmesh.serving.errors import FailedPreconditionStatus, UnavailableStatus
from specmesh.serving.templates.tokenizers import fingerprint
from specmesh.v1 import model_pb2


async def test_health_takes_a_peer_out_and_puts_it_back(connect):
    verifier = Verifier()
    mesh = (await connect([verifier])).mesh
    (peer,) = mesh.verifiers.peers
    assert mesh.verifiers.ready == [peer]
    await verifier.set_health(NOT_SERVING)
    await until(lambda: not peer.ready, peer)
    assert mesh.verifiers.ready == []
    await verifier.set_health(SERVING)
    await until(lambda: peer.ready, peer)


async def test_who_meets_a_need_is_found_once_until_a_peer_comes_or_goes(connect):
    large, small = Verifier(), Verifier(kv_capacity_tokens=8)
    mesh = (await connect([large, small])).mesh
    pool = mesh.verifiers
    (first, second), need = pool.peers, Need(pool.kinds[0])
    assert pool.ready_for(need) == [first, second]
    assert pool.ready_for(need) is pool.ready_for(need.of_tokens(8))
    assert pool.ready_for(need.of_tokens(9)) == [first]
    assert pool.ready_for(Need("another")) == []
    await large.set_health(NOT_SERVING)
    await until(lambda: not first.ready, first)
    assert pool.ready_for(need) == [second]
    assert pool.ready_for(need.of_tokens(9)) == []


@pytest.mark.parametrize(("most", "shares"), [(0, False), (1, False), (8, True)])
async def test_verifiers_say_whether_they_compute_several_calls_at_once(connect, most, shares):
    mesh = (await connect([Verifier(), Verifier(max_batch_calls=most)])).mesh
    assert mesh.latencies.price.can_share is shares


def _timed(num_rows: int, forward_ms: float) -> ForwardTime:
    return ForwardTime(num_rows=num_rows, forward_ms=forward_ms)


async def test_verifiers_tell_what_a_row_takes_before_the_first_call(connect):
    verifier = Verifier()
    verifier.forward_times = [_timed(1, 12), _timed(4, 18), _timed(16, 42)]
    mesh = (await connect([Verifier(), verifier])).mesh
    assert mesh.latencies.price.is_known
    assert mesh.latencies.price.token_s == pytest.approx(0.002)


@pytest.mark.parametrize(
    "impossible", [_timed(0, 1), _timed(8, 0), _timed(8, -1), _timed(8, nan), _timed(1 << 31, 1)]
)
async def test_forwards_that_cannot_be_tell_nothing(connect, impossible):
    verifier = Verifier()
    verifier.forward_times = [impossible, _timed(1, 12)]
    mesh = (await connect([verifier])).mesh
    assert not mesh.latencies.price.is_known


async def test_no_proxy_stands_between_an_orchestrator_and_its_replicas(connect, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    mesh = (await connect([Verifier()])).mesh
    assert len(mesh.verifiers.ready) == 1


async def test_peer_that_died_comes_back_at_the_same_address(connect):
    verifier = Verifier()
    mesh = (await connect([verifier])).mesh
    (peer,) = mesh.verifiers.peers
    await verifier.die()
    await until(lambda: not peer.ready, peer)
    await verifier.start()
    await until(lambda: peer.ready, peer)


async def test_peer_that_came_back_as_another_model_is_refused(connect):
    verifier = Verifier()
    mesh = (await connect([verifier, Verifier()])).mesh
    peer, _ = mesh.verifiers.peers
    await verifier.die()
    verifier.info.num_parameters += 1
    await verifier.start()
    await until(lambda: peer.refusal is not None, peer)
    assert "num_parameters" in peer.refusal
    assert peer not in mesh.verifiers.ready


async def test_pool_of_which_nobody_fits_says_why(connect):
    verifier = Verifier()
    verifier.tokenizer_json = ""
    mesh = (await connect([verifier])).mesh
    with pytest.raises(FailedPreconditionStatus, match="has no tokenizer") as raised:
        mesh.verifiers.reserve({}).__enter__()
    assert raised.value.reason == "VERIFIER_REFUSED"


async def test_a_process_of_another_role_is_refused_once_until_the_right_one_takes_its_place(
    caplog: pytest.LogCaptureFixture,
):
    drafter, verifier = Drafter(), Verifier()
    await drafter.start()
    pool = Pool("verifier", Verifier.service, [drafter.address], _anybody)
    (peer,) = pool.peers
    try:
        await until(lambda: peer.refusal is not None, peer)
        assert pool.states() == {"ready": 0, "down": 0, "refused": 1, "ejected": 0}
        for _ in range(2):
            peer.changed.clear()
            await drafter.die()
            await drafter.start()
            await asyncio.wait_for(peer.changed.wait(), 10)
        await drafter.die()
        verifier.address = drafter.address
        await verifier.start()
        await until(lambda: peer.ready, peer)
    finally:
        await pool.close()
        await drafter.die()
        await verifier.die()
    (told,) = (each for each in caplog.records if each.getMessage() == "peer refused")
    assert (told.levelname, vars(told)["peer"]) == ("WARNING", drafter.address)
    assert Verifier.service in vars(told)["reason"]


async def test_refused_drafter_is_not_used(connect):
    other = train_tokenizer(280).to_str()
    drafter = Drafter(tokenizer_fingerprint=fingerprint(other))
    drafter.tokenizer_json = other
    mesh = (await connect([Verifier()], [drafter])).mesh
    assert mesh.drafters.ready == []
    assert "the target's vocabulary has" in mesh.drafters.peers[0].refusal


async def test_peer_whose_admission_breaks_is_never_taken():
    """Neither at first nor when it is asked again."""
    drafter = Drafter()
    admissions = 0
    asked_again = asyncio.Event()

    async def admit(_model):
        nonlocal admissions
        admissions += 1
        if admissions == 2:
            asked_again.set()
        raise ValueError("cannot be understood")

    await drafter.start()
    pool = Pool("drafter", Drafter.service, [drafter.address], admit)
    try:
        await asyncio.wait_for(asked_again.wait(), 10)
        assert pool.ready == []
    finally:
        await pool.close()
        await drafter.die()


async def test_nobody_there_is_unavailable():
    pool = Pool("verifier", Verifier.service, ["127.0.0.1:1"], admit=None)
    with pytest.raises(UnavailableStatus, match="none of 1") as raised:
        pool.reserve({}).__enter__()
    assert raised.value.reason == "NO_VERIFIER"
    await pool.close()


async def test_least_busy_peer_comes_first(connect):
    pool = (await connect([Verifier(), Verifier()])).mesh.verifiers
    with pool.reserve({}) as first, pool.reserve({first.identity: 99}) as second:
        assert second is not first
        with pool.reserve({second.identity: 16}) as third:
            assert third is second  # as busy as the first, but holds more of the prefix
            with pool.reserve({second.identity: 16}) as fourth:
                assert fourth is first
    assert [peer.num_outstanding for peer in pool.peers] == [0, 0]


async def test_whoever_holds_a_prefix_does_not_get_all_that_begin_with_it(connect):
    pool = (await connect([Verifier(), Verifier()])).mesh.verifiers
    holder, other = pool.peers
    with ExitStack() as calls:
        for _ in range(20):
            calls.enter_context(pool.reserve({holder.identity: 100_000}, tokens_a_call=1))
        assert holder.num_outstanding - other.num_outstanding == MAX_READING


async def test_a_peer_that_lacks_a_long_prefix_counts_as_busier(connect):
    pool = (await connect([Verifier(), Verifier()])).mesh.verifiers
    holder, other = pool.peers
    holds = {holder.identity: 100, other.identity: 10}
    with pool.reserve(holds, tokens_a_call=40), pool.reserve(holds, tokens_a_call=40):
        # To read 90 tokens takes other as long as two calls: now it is as good, and holds less.
        assert holder.num_outstanding == 2
        with pool.reserve(holds, tokens_a_call=40) as third:
            assert third is holder
            with pool.reserve(holds, tokens_a_call=40) as fourth:
                assert fourth is other


async def test_of_equally_busy_peers_one_with_what_is_wanted_comes_first(connect):
    without = Verifier(features=[])
    pool = (await connect([without, Verifier(), Verifier()])).mesh.verifiers
    unable, able, other = pool.peers
    holds = {unable.identity: 30, other.identity: 20}
    heads = model_pb2.MODEL_FEATURE_HEADS
    with pool.reserve(holds) as anybody:
        assert anybody is unable
    with pool.reserve(holds, wanted=heads, tokens_a_call=40) as first:
        assert first is other  # which holds more than able
        with pool.reserve(holds, wanted=heads, tokens_a_call=40) as second:
            assert second is able
            # Nobody is waited for.
            with pool.reserve(holds, wanted=heads, tokens_a_call=40) as third:
                assert third is unable
    # Others would have to read for as long as two calls take.
    with pool.reserve({unable.identity: 80}, wanted=heads, tokens_a_call=40) as holder:
        assert holder is unable


async def test_peer_that_just_failed_is_taken_only_if_nobody_else_is_there(connect):
    verifiers = [Verifier(), Verifier()]
    pool = (await connect(verifiers)).mesh.verifiers
    first, second = pool.peers
    with pool.reserve({first.identity: 99}, avoid={first.address}) as chosen:
        assert chosen is second
    await verifiers[1].set_health(NOT_SERVING)
    await until(lambda: not second.ready, second)
    with pool.reserve({}, avoid={first.address}) as chosen:
        assert chosen is first


async def test_full_peer_is_passed_over_until_it_said_but_not_for_ever(connect, monkeypatch):
    pool = (await connect([Verifier(), Verifier()])).mesh.verifiers
    first, second = pool.peers
    at = asyncio.get_running_loop().time()
    monkeypatch.setattr(replica_pool, "now", lambda: at)
    pool.refused(first, 5.0)
    with pool.reserve({}) as chosen, pool.reserve({}) as further:
        assert chosen is further is second
    pool.refused(second, 3600.0)
    with pool.reserve({}) as chosen, pool.reserve({}) as further:  # all are as full
        assert [chosen, further] == [first, second]
    at += 5.0
    with pool.reserve({second.identity: 99}) as chosen:
        assert chosen is first
    at += replica_pool.MAX_FULL_SECONDS
    with pool.reserve({second.identity: 99}) as chosen:
        assert chosen is second


async def test_process_that_came_anew_is_not_full(connect):
    verifier = Verifier()
    pool = (await connect([verifier, Verifier()])).mesh.verifiers
    first = pool.peers[0]
    pool.refused(first, 60.0)
    await verifier.die()
    await until(lambda: not first.ready, first)
    await verifier.start()
    await until(lambda: first.ready, first)
    with pool.reserve({}) as chosen, pool.reserve({}) as further:
        assert first in (chosen, further)


async def test_kind_names_the_model_that_must_answer(connect):
    drafters = [Drafter("small"), Drafter("tiny"), Drafter("small")]
    pool = (await connect([Verifier()], drafters)).mesh.drafters
    assert pool.kinds == ["small", "tiny"]
    tiny = pool.peers[1]
    needed = Need("tiny")
    with pool.reserve({}, need=needed) as first, pool.reserve({}, need=needed) as second:
        assert first is second is tiny
        with pool.reserve({}) as anybody:
            assert anybody is not tiny
    with pytest.raises(UnavailableStatus, match="none of 3"):
        pool.reserve({}, need=Need("huge")).__enter__()


async def test_kinds_are_of_ready_peers(connect):
    drafters = [Drafter("small"), Drafter("tiny")]
    pool = (await connect([Verifier()], drafters)).mesh.drafters
    await drafters[0].set_health(NOT_SERVING)
    await until(lambda: not pool.peers[0].ready, pool.peers[0])
    assert pool.kinds == ["tiny"]
    assert pool.hosts == {"127.0.0.1"}


async def test_waiting_ends_when_a_peer_comes_up(connect):
    late = Verifier()
    await late.start()
    await late.set_health(NOT_SERVING)
    pool = Pool("verifier", Verifier.service, [late.address], admit=_anybody)
    waiting = asyncio.create_task(pool.wait_ready())
    await late.set_health(SERVING)
    await asyncio.wait_for(waiting, 10)
    assert pool.ready
    await pool.close()
    await late.die()


async def _anybody(_model):
    return None


async def test_pool_counts_its_peers_by_state(connect):
    good, stopped, other, bad = (Verifier() for _ in range(4))
    pool = (await connect([good, stopped, other, bad])).mesh.verifiers
    peers = dict(zip(("good", "stopped", "other", "bad"), pool.peers, strict=True))
    assert pool.states() == {"ready": 4, "down": 0, "refused": 0, "ejected": 0}
    await stopped.set_health(NOT_SERVING)
    await until(lambda: not peers["stopped"].ready, peers["stopped"])
    await other.die()
    other.info.num_parameters += 1
    await other.start()
    await until(lambda: peers["other"].refusal is not None, peers["other"])
    while pool.states()["ejected"] == 0:
        pool.failed(peers["bad"], began=asyncio.get_running_loop().time())
    assert pool.states() == {"ready": 1, "down": 1, "refused": 1, "ejected": 1}

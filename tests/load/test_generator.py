"""A generator keeps to its schedule, and times count from when requests were due."""

import asyncio
import time
from itertools import pairwise

import pytest
from tests.load.conftest import FakeTransport, chunks_of, generated, workload

from specmesh.load.generators.event_loop import precise_loop
from specmesh.load.generators.generator import Generator, WorkloadPart
from specmesh.load.transports.observation import RequestOutcome
from specmesh.load.transports.transport import RequestFailed, Told
from specmesh.load.workload.arrivals import ConstantArrivals, ReplayedArrivals, Users
from specmesh.load.workload.conversations import Conversation, Listed, Synthetic, Turn
from specmesh.load.workload.lengths import ConstantLength
from specmesh.load.workload.plan import RunLength
from specmesh.load.workload.variations import Variation

ANSWERED = Told(num_prompt_tokens=3, num_output_tokens=2)


async def test_an_open_loop_does_not_wait_for_answers():
    release = asyncio.Event()

    async def answer(call, heard):
        if len(transport.calls) == 3:
            release.set()
        await release.wait()
        heard(1, "a")
        return ANSWERED

    transport = FakeTransport(answer)
    seen = await generated(workload(), transport)
    assert [each.outcome for each in seen] == [RequestOutcome.ANSWERED] * 3


async def test_what_a_stall_holds_back_counts_from_when_it_was_due():
    async def answer(call, heard):
        if len(transport.calls) == 1:
            time.sleep(0.3)  # noqa: ASYNC251 - the stall of a whole process is the point
        heard(1, "a")
        return ANSWERED

    transport = FakeTransport(answer)
    first, *others = await generated(
        workload(arrivals=ReplayedArrivals((0.0, 0.05, 0.1))), transport
    )
    assert first.e2e_s >= 0.3
    for each, held_back_s in zip(others, (0.25, 0.2), strict=True):
        assert each.sent_s - each.due_s >= held_back_s - 0.01
        assert each.ttft_s >= held_back_s - 0.01
        assert each.e2e_s >= each.ttft_s


async def test_times_and_tokens_of_an_answer_are_noted():
    async def answer(call, heard):
        await asyncio.sleep(0.02)
        heard(1, "a")
        await asyncio.sleep(0.04)
        heard(3, "b c d")
        heard(0, "the rest of the text")
        return Told(num_prompt_tokens=7, num_output_tokens=4)

    (seen,) = await generated(workload(arrivals=ReplayedArrivals((0.0,))), FakeTransport(answer))
    assert seen.ttft_s >= 0.02
    assert seen.e2e_s >= seen.ttft_s + 0.04
    assert (seen.num_prompt_tokens, seen.num_output_tokens, seen.num_chunks) == (7, 4, 2)
    assert seen.tpot_s == pytest.approx((seen.e2e_s - seen.ttft_s) / 3)


async def test_a_server_that_counts_no_tokens_is_believed_at_the_end():
    async def answer(call, heard):
        heard(None, "a")
        heard(None, "b")
        return Told(num_prompt_tokens=7, num_output_tokens=6)

    (seen,) = await generated(workload(arrivals=ReplayedArrivals((0.0,))), FakeTransport(answer))
    assert (seen.num_output_tokens, seen.num_chunks) == (6, 2)


async def test_failures_have_their_reason_and_do_not_end_the_run():
    async def answer(call, heard):
        if len(transport.calls) == 2:
            raise RequestFailed("OVERLOADED", "come back later")
        heard(1, "a")
        return ANSWERED

    transport = FakeTransport(answer)
    seen = await generated(workload(), transport)
    outcomes = sorted((each.outcome, each.reason) for each in seen)
    assert outcomes == [("answered", ""), ("answered", ""), ("failed", "OVERLOADED")]


async def test_an_error_of_our_own_costs_one_request_and_is_logged_once(caplog):
    async def answer(call, heard):
        if len(transport.calls) < 3:
            raise TypeError("odd")
        heard(1, "a")
        return ANSWERED

    transport = FakeTransport(answer)
    seen = await generated(workload(), transport)
    outcomes = sorted((each.outcome, each.reason) for each in seen)
    assert outcomes == [("answered", ""), ("failed", "TypeError"), ("failed", "TypeError")]
    assert len(caplog.records) == 1


async def test_a_gap_is_one_of_chunks_and_as_many_of_tokens_as_came_with_the_next():
    async def answer(call, heard):
        heard(2, "a b")
        await asyncio.sleep(0.06)
        heard(3, "c d e")
        return Told(num_prompt_tokens=7, num_output_tokens=5)

    chunks = await chunks_of(workload(arrivals=ReplayedArrivals((0.0,))), FakeTransport(answer))
    assert (chunks.gaps.count, chunks.token_gaps.count) == (1, 3)
    assert chunks.gaps.mean() >= 0.06
    assert chunks.token_gaps.mean() == pytest.approx(chunks.gaps.mean() / 3, rel=0.01)


async def test_chunks_of_what_is_cancelled_or_fails_count_too():
    async def answer(call, heard):
        for text in ("a", "b", "c"):
            if not heard(1, text):
                return
        raise RequestFailed("GONE", "gone")

    for changed in ({}, {"cancelled_share": 1.0, "cancelled_after": ConstantLength(3)}):
        found = await chunks_of(workload(**changed), FakeTransport(answer))
        assert (found.gaps.count, found.sizes) == (3 * 2, {1: 3 * 3})


async def test_a_server_that_does_not_count_has_no_gaps_of_tokens():
    async def answer(call, heard):
        heard(None, "a")
        heard(None, "b")
        return Told(num_prompt_tokens=7, num_output_tokens=5)

    chunks = await chunks_of(workload(arrivals=ReplayedArrivals((0.0,))), FakeTransport(answer))
    assert (chunks.gaps.count, chunks.token_gaps.count) == (1, 0)


async def test_the_share_to_be_cancelled_is_cancelled_after_its_tokens():
    async def answer(call, heard):
        for number in range(8):
            if not heard(1, str(number)):
                return None
        return Told(num_prompt_tokens=1, num_output_tokens=8)

    load = workload(
        arrivals=ConstantArrivals(2000.0),
        extent=RunLength(max_conversations=200),
        cancelled_share=0.3,
        cancelled_after=ConstantLength(3),
    )
    seen = await generated(load, FakeTransport(answer))
    cancelled = [each for each in seen if each.outcome is RequestOutcome.CANCELLED]
    assert 35 <= len(cancelled) <= 85
    assert {each.num_output_tokens for each in cancelled} == {3}
    assert {each.num_output_tokens for each in seen if each not in cancelled} == {8}


async def test_a_turn_is_sent_with_what_was_said_before():
    conversation = Conversation((Turn("hello", 5), Turn("and you?"), Turn("bye")))
    load = workload(arrivals=ReplayedArrivals((0.0,)), conversations=Listed([conversation]))
    transport = FakeTransport()
    seen = await generated(load, transport)
    assert [call.said for call in transport.calls] == [
        ("hello",),
        ("hello", "one two ", "and you?"),
        ("hello", "one two ", "and you?", "one two ", "bye"),
    ]
    assert [call.max_tokens for call in transport.calls] == [5, 8, 8]
    assert all(after.due_s >= before.ended_s for before, after in pairwise(seen))


async def test_messages_of_the_system_go_with_every_turn():
    asked = Listed((Conversation((Turn("hi"), Turn("bye")), system=("be brief",)),))
    transport = FakeTransport()
    await generated(workload(conversations=asked, arrivals=ReplayedArrivals((0.0,))), transport)
    assert [each.system for each in transport.calls] == [("be brief",)] * 2


async def test_users_wait_for_their_answers_and_think():
    under_way = most = 0

    async def answer(call, heard):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.005)
        under_way -= 1
        heard(1, "a")
        return ANSWERED

    load = workload(arrivals=Users(3, 0.002), extent=RunLength(max_conversations=30))
    seen = await generated(load, FakeTransport(answer))
    assert sorted(each.conversation for each in seen) == list(range(30))
    assert most <= 3


async def test_a_user_waits_longer_with_each_failure_in_a_row_or_as_long_as_it_is_told(monkeypatch):
    now_s, seen = 0.0, []

    async def until(_, at_s):
        nonlocal now_s
        now_s = at_s

    async def answer(call, heard):
        number = len(transport.calls)
        if number != 3:
            raise RequestFailed("OVERLOADED", "full", retry_after_s=5.0 if number == 6 else None)
        return ANSWERED

    monkeypatch.setattr(Generator, "_until", until)
    transport = FakeTransport(answer)
    load = workload(arrivals=Users(1), extent=RunLength(max_conversations=8))
    await Generator(load, WorkloadPart(0, 1, False), transport, seen.append, lambda: now_s).run()
    pauses = [after.due_s - before.due_s for before, after in pairwise(seen)]
    assert pauses == pytest.approx([0.01, 0.02, 0.0, 0.01, 0.02, 5.0, 0.08])


async def test_a_mix_is_sent_by_weight_with_the_settings_of_each():
    kinds = (Variation(weight=3, strategy="dsi"), Variation(strategy="autoregressive"))
    load = workload(
        arrivals=ConstantArrivals(2000.0), extent=RunLength(max_conversations=400), variations=kinds
    )
    transport = FakeTransport()
    seen = await generated(load, transport)
    assert [each.variation for each in seen].count(0) == pytest.approx(300, abs=45)
    assert {call.variation.strategy for call in transport.calls} == {"dsi", "autoregressive"}


async def test_the_deadline_counts_from_when_a_request_was_due():
    async def answer(call, heard):
        if len(transport.calls) == 1:
            time.sleep(0.2)  # noqa: ASYNC251 - the stall of a whole process is the point
        heard(1, "a")
        return ANSWERED

    transport = FakeTransport(answer)
    await generated(workload(arrivals=ReplayedArrivals((0.0, 0.01)), timeout_s=5.0), transport)
    first, second = (call.timeout_s for call in transport.calls)
    assert 4.9 < first <= 5.0
    assert first - second > 0.15


def test_the_event_loop_wakes_within_a_millisecond():
    async def shortest_lateness() -> float:
        late = []
        for _ in range(50):
            began = time.perf_counter()
            await asyncio.sleep(0.0013)
            late.append(time.perf_counter() - began - 0.0013)
        return min(late)

    with asyncio.Runner(loop_factory=precise_loop) as runner:
        assert runner.run(shortest_lateness()) < 0.0005


def test_prompts_of_a_workload_are_as_long_as_the_tokenizer_needs():
    load = workload(
        conversations=Synthetic(prompt_tokens=ConstantLength(100)), words_per_token=0.25
    )
    assert len(load.conversation(0).turns[0].text.split()) == 25

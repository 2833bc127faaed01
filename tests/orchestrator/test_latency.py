"""How fast the mesh is, as seen from the orchestrator."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import pairwise

import pytest
from opentelemetry.context import Context
from tests.orchestrator.conftest import draft, until
from tests.orchestrator.model import VOCAB_SIZE
from tests.orchestrator.peers import START, Drafter, Verifier

from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.mesh.v1alpha1 import drafter_pb2, verifier_pb2
from specmesh.orchestrator.replicas.calls.mesh_calls import Calls
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.latencies.mesh_latencies import Latencies
from specmesh.orchestrator.replicas.latencies.observations import (
    ReplicaCost,
    TimedDraft,
    TimedVerification,
)
from specmesh.orchestrator.replicas.latencies.patience import CallPatience
from specmesh.orchestrator.replicas.latencies.prefill import LEAST_TOKENS
from specmesh.orchestrator.replicas.latencies.sliding import WINDOW, RunningMedian
from specmesh.orchestrator.replicas.latencies.token_price import TokenPrice
from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix
from specmesh.orchestrator.replicas.replica_pools import ReplicaPools
from specmesh.orchestrator.strategies.commands import Draft, Verify
from specmesh.orchestrator.strategies.events import Capacity


def calls_on(mesh: ReplicaPools, num_prompt_tokens: int = 3) -> Calls:
    deadline = asyncio.get_running_loop().time() + 10
    prefix = CommittedPrefix("s", [1] * num_prompt_tokens)
    return Calls(RequestContext(mesh, prefix, Sampling(), vocab_size=VOCAB_SIZE, deadline=deadline))


async def drafted(calls: Calls, command: Draft) -> None:
    await draft(calls, command, calls.command_context(Context(), START), lambda drafted: None)


def test_nothing_is_known_before_the_first_value():
    assert RunningMedian().value is None


def test_one_slow_call_does_not_count():
    median = RunningMedian()
    for value in (0.01, 5.0, 0.012):
        median.add(value)
    assert median.value == 0.012


def test_small_changes_do_not_show():
    """Strategies are told of every change."""
    median = RunningMedian()
    seen = set()
    for value in (0.01230, 0.01234, 0.01199, 0.01243):
        median.add(value)
        seen.add(median.value)
    assert seen == {0.012}


def test_old_values_are_forgotten():
    median = RunningMedian()
    for value in [1.0] * WINDOW + [2.0] * (WINDOW // 2 + 1):
        median.add(value)
    assert median.value == 2.0


def price_of(calls: Iterable[tuple[int, int, float, float]]) -> TokenPrice:
    """The price after calls of so many in a forward, so many rows, a forward and a queue time."""
    price = TokenPrice()
    for call in calls:
        price.add(*call)
    return price


def test_a_token_of_an_answer_alone_costs_the_time_of_its_row():
    price = price_of((1, rows, 0.01 + 0.0004 * rows, 0.0) for rows in [1, 5, 2, 8] * 8)
    assert price.token_s == 0.0004


@pytest.mark.parametrize("num_calls", [1, 3, 7, 15, 64])
def test_the_first_report_of_a_forward_counts(num_calls):
    """Answers decide about drafts while the other reports still come."""
    price = price_of([(num_calls, num_calls, 0.02, 0.0)] * num_calls)
    assert not price.is_known
    price.add(num_calls, 2 * num_calls, 0.03, 0.0)
    assert price.is_known
    assert price.token_s == pytest.approx(0.01, rel=0.1)


def test_a_token_costs_all_answers_that_share_its_forward():
    batches = [(calls, calls * drafted) for drafted in (1, 2, 3) * 8 for calls in [8] * 8]
    price = price_of((calls, rows, 0.01 + 0.001 * rows, 0.0) for calls, rows in batches)
    assert price.token_s == pytest.approx(0.008)


def test_a_token_costs_those_too_that_queue_for_the_next_forward():
    price = price_of(
        (1, rows, 0.01 + 0.001 * rows, 3 * (0.01 + 0.001 * rows)) for rows in [1, 5] * 16
    )
    assert price.token_s == pytest.approx(0.004)


def test_how_long_calls_queue_does_not_make_their_tokens_seem_slow():
    price = price_of((1, rows, 0.01, 0.01 * rows) for rows in [1, 5] * 16)
    assert price.token_s == 0


def test_what_the_target_would_take_without_drafts_is_told():
    price = price_of((1, rows, 0.01 + 0.001 * rows, 0.0) for rows in [3, 5, 7] * 16)
    assert price.decoding_s == pytest.approx(0.011)


def test_without_drafts_calls_that_cannot_share_a_forward_would_wait_for_each_other():
    price = price_of(
        (1, rows, 0.01 + 0.001 * rows, 3 * (0.01 + 0.001 * rows)) for rows in [3, 5] * 32
    )
    assert price.decoding_s == pytest.approx(4 * 0.011)


def test_without_drafts_calls_that_can_share_a_forward_would_all_do_so():
    """Here two groups take turns."""
    forwards = [(8, rows, 0.01 + 0.001 * rows, 0.01 + 0.001 * rows) for rows in (16, 24)]
    price = price_of(forward for forward in forwards * 256 for _ in range(8))
    assert price.num_sharing == pytest.approx(16, rel=0.02)
    assert price.decoding_s == pytest.approx(0.01 + 0.001 * 16)


def test_two_answers_that_take_turns_are_known_to_share_a_replica_that_says_it_can():
    price = TokenPrice()
    price.can_share = True
    for _ in range(200):
        price.add(1, 3, 0.02, 0.02)
    assert price.period_s == pytest.approx(0.02)
    assert price.num_sharing == pytest.approx(2)
    assert price.decoding_s == pytest.approx(0.02)


def gpu_s(rows: int) -> float:
    """The time of a forward that is flat up to 300 rows."""
    return 0.005 * max(1.0, rows / 300)


def test_the_price_is_steady_although_all_calls_of_a_forward_tell_of_it_one_after_the_other():
    price, seen = TokenPrice(), []
    for turn in range(200):
        for num_calls, other in ((200, 56), (56, 200)):
            rows = 2 * num_calls + turn % 7
            for _ in range(num_calls):
                price.add(num_calls, rows, gpu_s(rows), gpu_s(2 * other))
                seen.append(price.token_s)
    latest = seen[len(seen) // 2 :]
    assert max(latest) <= 1.1 * min(latest)
    assert price.num_sharing == pytest.approx(256, rel=0.05)


def test_the_first_tokens_of_a_crowd_are_cheaper_where_a_forward_is_still_flat():
    price = TokenPrice()
    for number in range(64):
        for rows in (200, 400 + number, 800 - number):
            for _ in range(200):
                price.add(200, rows, gpu_s(rows), 0.0)
    assert price.decoding_s == pytest.approx(0.005, rel=0.05)
    one_each_s = price.decoding_s + price.first_s + price.token_s
    assert one_each_s == pytest.approx(gpu_s(400), rel=0.06)
    assert price.first_s < 0


def test_while_heads_draft_no_call_counts_as_waiting_more_than_once():
    price = TokenPrice()
    for _ in range(200):  # four calls take turns, each with 10 ms of the target and 10 of its heads
        price.add(1, 2, 0.01, 0.06, heads_s=0.01)
    assert price.num_waiting == pytest.approx(4)


def test_what_much_larger_forwards_take_is_not_foreseen():
    price = price_of([(1, 1, 0.01, 0.0), (1, 2, 0.01, 0.0)])
    assert price.most_tokens == 7
    price.add(1, 8, 0.01, 0.0)
    assert price.most_tokens == 31


CONCAVE = {1: 0.0105, 3: 0.0166, 4: 0.0173, 5: 0.018}


def test_a_quick_first_row_does_not_make_further_ones_seem_dear():
    price = price_of((1, rows, CONCAVE[rows], 0.0) for rows in [3, 4, 5, 1] * 16)
    assert price.token_s == pytest.approx(0.0007)


def test_nor_does_it_make_the_target_alone_seem_slow():
    price = price_of((1, rows, CONCAVE[rows], 0.0) for rows in [3, 4, 5, 5, 1] * 16)
    assert price.decoding_s == pytest.approx(0.0105, rel=0.06)


def test_a_target_that_mostly_works_alone_takes_what_it_takes():
    price = price_of((1, rows, CONCAVE[rows], 0.0) for rows in [3, 4, 5, *[1] * 12] * 16)
    assert price.decoding_s == pytest.approx(0.0105, rel=0.06)


def test_replicas_that_are_shared_now_and_then_do_not_flip_to_and_fro():
    price = TokenPrice()
    seen = []
    for num_calls in [*[1] * 50, *[2] * 100, *[1, 2] * 100, *[1] * 200]:
        price.add(num_calls, num_calls, 0.03, 0.0)
        seen.append(price.period_s > 0)
    changes = sum(one != other for one, other in pairwise(seen))
    assert changes == 2
    assert seen[140]
    assert not seen[-1]


def timed_price(num_calls: int) -> TokenPrice:
    """The price after a forward of so many calls without drafts, where replicas timed forwards of
    up to 64 rows at their start."""
    price = TokenPrice()
    price.start_with((rows, 0.01 + 0.005 * rows) for rows in (1, 2, 4, 8, 16, 32, 64))
    for _ in range(num_calls):
        price.add(num_calls, num_calls, 0.01 + 0.005 * num_calls, 0.0)
    return price


def test_what_replicas_timed_at_their_start_tells_the_price_before_there_are_drafts():
    price = timed_price(4)
    assert price.is_known
    assert price.token_s == pytest.approx(4 * 0.005)
    assert price.most_tokens == 15


def test_it_tells_nothing_of_larger_forwards():
    price = timed_price(64)
    assert not price.is_known
    assert price.token_s == 0


def test_what_calls_show_replaces_what_was_timed_at_the_start():
    price = timed_price(1)
    for rows in [1, 5, 2, 8] * 8:
        price.add(1, rows, 0.01 + 0.001 * rows, 0.0)
    assert price.token_s == pytest.approx(0.001)


def test_replicas_that_start_later_are_counted_on_in_place_of_the_earlier_ones():
    price = timed_price(1)
    price.start_with([])
    assert not price.is_known


def test_many_replicas_are_counted_on_by_the_median_of_each_size():
    price = TokenPrice()
    scales = [1.0] * 60 + [50.0] * 40
    price.start_with((rows, scale * 0.001 * rows) for scale in scales for rows in (1, 2, 4, 8))
    assert price.token_s == pytest.approx(0.001)


def test_before_anything_is_known_tokens_are_free():
    price = TokenPrice()
    assert (price.token_s, price.decoding_s) == (0.0, None)
    assert Capacity(target_s=0.02, target_alone_s=None).alone_s == 0.02


def test_a_call_without_a_forward_tells_nothing():
    assert price_of([(0, 0, 0.0, 0.1)] * 64).token_s == 0


def test_models_are_told_apart():
    latencies = Latencies()
    latencies.drafter("small").add(1, 1, 0.001)
    assert latencies.drafter("tiny").level_s is None
    assert latencies.drafter("small").level_s == 0.001


def test_wide_levels_tell_what_each_of_their_tokens_adds():
    latencies = Latencies()
    for n in range(64):
        num_levels = 1 + n % 3
        num_nodes = num_levels * (1 + n % 4)
        seconds = num_levels * 0.001 + num_nodes * 0.0005
        cost = ReplicaCost(forward_s=seconds)
        latencies.drafted("tiny", TimedDraft(num_levels, num_nodes, cost))
        latencies.verified(
            TimedVerification(
                0.02 + seconds, 1, ReplicaCost(forward_s=0.02), seconds, num_levels, num_nodes
            )
        )
    capacity = latencies.capacity(1, ["tiny"], 8, 1)
    assert (capacity.drafter_s, capacity.drafter_sibling_s) == pytest.approx((0.0015, 0.0005))
    assert (capacity.heads_s, capacity.heads_sibling_s) == pytest.approx((0.0015, 0.0005))


def test_what_it_takes_to_read_a_prefix_is_told_apart_from_the_levels_drafted_after_it():
    latencies, reading = Latencies(), ReplicaCost(forward_s=0.048, num_computed_tokens=300)
    latencies.drafted("tiny", TimedDraft(4, 4, reading))
    assert latencies.capacity(1, ["tiny"], 0, 1).drafter_reading_s == 0
    latencies.drafted("tiny", TimedDraft(2, 2, ReplicaCost(forward_s=0.004)))
    latencies.drafted("tiny", TimedDraft(4, 4, reading))
    capacity = latencies.capacity(1, ["tiny"], 0, 1)
    assert (capacity.drafter_s, capacity.drafter_reading_s) == pytest.approx((0.002, 0.04))


@pytest.mark.parametrize("num_answers", [1, 16, 256])
def test_capacity_follows_each_verification_at_first_and_later_as_many_as_there_are_answers(
    num_answers,
):
    latencies = Latencies()
    anew: list[int] = []
    capacity = latencies.capacity(1, [], 0, num_answers)
    for number in range(1, 20_000):
        cost = ReplicaCost(queue_s=0.0, forward_s=0.01, num_batch_calls=1, num_batch_tokens=1)
        latencies.verified(TimedVerification(0.01, 0, cost))
        before, capacity = capacity, latencies.capacity(1, [], 0, num_answers)
        if capacity is not before:
            anew.append(number)
    intervals = [later - earlier for earlier, later in pairwise(anew)]
    assert set(intervals[:30]) == {1}
    assert intervals == sorted(intervals)
    assert intervals[-1] == max(4, num_answers)


async def test_capacity_is_what_is_ready_and_how_fast_it_was(connect):
    drafters = [Drafter("small"), Drafter("tiny"), Drafter("small")]
    mesh = (await connect([Verifier(), Verifier()], drafters)).mesh
    calls = calls_on(mesh)
    unknown = Capacity(
        num_verifiers=2, drafters=("small", "tiny"), knows_price=False, shares_host=True
    )
    assert calls.capacity() == unknown
    drafters[0].level_ms = drafters[2].level_ms = 2.0
    drafters[1].level_ms = 0.5
    await drafted(calls, Draft(1, (), depth=4, levels_per_message=2))
    await drafted(calls, Draft(2, (), depth=1, drafter=1))
    await calls.verifications.verify(Verify(3, (), EMPTY), calls.command_context(Context(), START))
    capacity = calls.capacity()
    assert capacity.drafter_s == pytest.approx(0.002)
    assert mesh.latencies.drafter("tiny").level_s == pytest.approx(0.0005)
    assert 0 < capacity.target_s < 10


async def test_draft_that_is_shorter_than_asked_for_is_not_taken_for_a_fast_one(connect):
    drafter = Drafter()
    drafter.level_ms, drafter.max_levels = 2.0, 3
    calls = calls_on((await connect([Verifier()], [drafter])).mesh)
    await drafted(calls, Draft(1, (), depth=8, levels_per_message=8))
    assert calls.capacity().drafter_s == pytest.approx(0.002)


async def test_verifications_of_all_widths_tell_what_a_token_costs(connect, monkeypatch):
    calls = calls_on((await connect([Verifier()])).mesh)
    added: list[tuple[int, int]] = []
    monkeypatch.setattr(
        TokenPrice, "add", lambda self, calls, rows, *_: added.append((calls, rows))
    )
    for task, width in enumerate((0, 3, 1)):
        command = Verify(task, (), TokenTree.chain(range(width)))
        await calls.verifications.verify(command, calls.command_context(Context(), START))
    assert added == [(1, 1), (1, 4), (1, 2)]


async def test_forwards_that_read_a_long_prefix_do_not_tell_what_a_token_costs(
    connect, monkeypatch
):
    verifier = Verifier()

    def read_the_prompt(message: verifier_pb2.VerifyResponse) -> None:
        message.cost.num_computed_tokens = 3 + LEAST_TOKENS

    verifier.corrupt = read_the_prompt
    calls = calls_on((await connect([verifier])).mesh, num_prompt_tokens=2 * LEAST_TOKENS)
    added: list[int] = []
    monkeypatch.setattr(TokenPrice, "add", lambda *_: added.append(1))
    await calls.verifications.verify(
        Verify(1, (), TokenTree.chain((1, 2))), calls.command_context(Context(), START)
    )
    assert not added


@pytest.mark.parametrize(("num_read", "counts"), [(4, True), (60, False)])
async def test_draft_that_had_to_read_the_text_first_is_not_taken_for_a_slow_one(
    connect, num_read, counts
):
    drafter = Drafter()
    drafter.level_ms = 2.0

    def reads(message: drafter_pb2.DraftResponse) -> None:
        message.cost.num_computed_tokens = num_read

    drafter.corrupt = reads
    calls = calls_on((await connect([Verifier()], [drafter])).mesh)
    await drafted(calls, Draft(1, (), depth=1))
    assert (calls.capacity().drafter_s is not None) is counts


async def test_levels_without_a_forward_pass_tell_nothing_and_leave_the_prefix_to_be_read(
    connect, monkeypatch
):
    drafter = Drafter()
    added: list[int] = []
    monkeypatch.setattr(CallPatience, "add", lambda self, replica, tokens, s: added.append(tokens))
    costs = iter([0.0, 0.0, 2.0, 2.0])

    def forced_at_first(message: drafter_pb2.DraftResponse) -> None:
        message.cost.SetInParent()
        message.cost.forward_ms = next(costs)

    drafter.corrupt = forced_at_first
    calls = calls_on((await connect([Verifier()], [drafter])).mesh, num_prompt_tokens=100)
    await drafted(calls, Draft(1, (), depth=4, levels_per_message=1))
    assert added == [100 + 1, 1]
    assert calls.capacity().drafter_s == pytest.approx(0.002)


async def test_a_kind_of_drafter_keeps_its_name_when_another_leaves(connect):
    drafters = [Drafter("small"), Drafter("tiny")]
    mesh = (await connect([Verifier()], drafters)).mesh
    calls = calls_on(mesh)
    await drafters[0].die()
    gone = mesh.drafters.peers[0]
    await until(lambda: not gone.ready, gone)
    assert calls.capacity().drafters == ("tiny",)


async def test_drafter_that_does_not_say_what_it_took_is_not_taken_for_infinitely_fast(connect):
    mesh = (await connect([Verifier()], [Drafter()])).mesh
    calls = calls_on(mesh)
    await drafted(calls, Draft(1, (), depth=2))
    assert calls.capacity().drafter_s is None


async def test_mesh_without_drafters_still_counts_one(connect):
    """Its drafts fail, and the strategies go on without."""
    capacity = calls_on((await connect([Verifier()])).mesh).capacity()
    assert capacity == Capacity(num_verifiers=1, drafters=(0,), knows_price=False)


def test_the_price_of_a_token_is_unknown_until_forwards_of_different_sizes_were_seen():
    price = TokenPrice()
    price.add(1, 1, 0.04, 0.0)
    assert not price.is_known
    price.add(1, 3, 0.05, 0.0)
    assert price.is_known
    for _ in range(100):
        price.add(1, 1, 0.04, 0.0)
    assert price.is_known


def test_answers_that_queue_for_a_replica_wait_one_after_the_other():
    queued, shared = TokenPrice(), TokenPrice()
    for _ in range(8):
        queued.add(1, 1, 0.04, 0.12)
        shared.add(4, 4, 0.04, 0.0)
    assert (queued.num_waiting, shared.num_waiting) == (4.0, 1.0)

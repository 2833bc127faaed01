"""The pace at which prefixes are computed again that were evicted between two calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from math import inf

import pytest

from specmesh.decoding.prefix import BLOCK_TOKENS, PrefixChain
from specmesh.decoding.trees.tree import EMPTY
from specmesh.inference.engine.blocks import rereads
from specmesh.inference.engine.blocks.pool import BlockPool
from specmesh.inference.engine.blocks.rereads import (
    A_MOMENT,
    TOKENS_PER_CALL,
    RereadLater,
    Rereads,
)
from specmesh.inference.engine.engine import Engine
from specmesh.inference.engine.job import Job
from specmesh.inference.model import ForwardRequest, Logits
from specmesh.inference.models.transformers_model import TransformersModel

LENGTH = 4 * BLOCK_TOKENS + 1
FIT = 3
"""Prefixes of that length that a pool holds."""
TOKEN_S = 0.004
"""The seconds of a token by a clock that is put forward: a text of 96, 0.4 s."""


def text(number: int) -> list[int]:
    return [number] * LENGTH


@pytest.fixture
def pool() -> BlockPool:
    pool = BlockPool(FIT * 5)
    pool.rereads = Rereads()
    return pool


def call(pool: BlockPool, number: int) -> int:
    """A call behind the text of that number; returns how many of its tokens were cached."""
    chain = PrefixChain(text(number))
    table = pool.open(chain, 1)
    pool.close(table, chain)
    return table.num_cached


def test_a_prefix_that_was_just_evicted_waits_until_others_have_made_enough_calls(pool):
    for number in range(FIT + 2):
        call(pool, number)
    call(pool, 0)  # the first to be computed again
    for _ in range(4 * BLOCK_TOKENS // TOKENS_PER_CALL):
        with pytest.raises(RereadLater):
            call(pool, 1)
        assert call(pool, 0) == LENGTH - 1
    assert call(pool, 1) == 0


def test_a_call_that_is_put_off_changes_nothing(pool):
    for number in [*range(FIT + 2), 0]:
        call(pool, number)
    before = (pool.num_used, pool.num_cached, pool.num_free, pool.num_evicted)
    with pytest.raises(RereadLater):
        call(pool, 1)
    assert (pool.num_used, pool.num_cached, pool.num_free, pool.num_evicted) == before


def test_it_need_not_wait_where_nobody_else_calls(pool):
    for number in [*range(FIT + 2), 0]:
        call(pool, number)
    pool.rereads.hurry()
    assert call(pool, 1) == 0
    with pytest.raises(RereadLater):
        call(pool, 2)


def test_new_prefixes_and_those_that_nobody_has_asked_for_lately_do_not_wait(pool):
    for number in [*range(FIT + 2), 0]:
        call(pool, number)
    assert call(pool, 99) == 0
    pool.rereads.hurry()
    call(pool, 2)
    for _ in range(A_MOMENT):
        call(pool, 2)
    assert call(pool, 1) == 0


def test_where_blocks_are_free_nobody_waits(pool):
    for number in [*range(FIT + 2), 0]:
        call(pool, number)
    table = pool.open(PrefixChain([7]), (FIT * 5 - 1) * BLOCK_TOKENS)  # evicts all others
    pool.close(table, None)
    assert call(pool, 1) == 0


def test_only_so_many_evicted_blocks_are_remembered(monkeypatch):
    monkeypatch.setattr(rereads, "MOST_EVICTED", 2)
    pace = Rereads()
    for digest in (b"1", b"2", b"1", b"3"):
        pace.evicted(digest)
    assert [pace.is_reread(digest) for digest in (b"1", b"2", b"3")] == [True, False, True]


async def computed_per_call(
    model: TransformersModel, *, num_answers: int = 8, away_s: float = 0.0
) -> float:
    """The tokens that answers of 20 calls each compute for a call, whose texts begin with 96 and
    whose callers are away between two calls."""
    num_calls, num_computed = 20, []

    def work(prefix: list[int]):
        def steps(job: Job[None]):
            sequence = job.open(model, prefix, 0)
            yield ForwardRequest(sequence, EMPTY)
            num_computed.append(sequence.num_computed_tokens)
            sequence.close(())
            yield None

        return steps

    async def answer(number: int) -> None:
        prefix = [number + 1] * 96
        for _ in range(num_calls):
            await engine.run(work(prefix))
            prefix = [*prefix, 1]
            await asyncio.sleep(away_s)

    engine = Engine(lambda: model, max_queue=64)
    await engine.ready()
    try:
        await asyncio.gather(*map(answer, range(num_answers)))
    finally:
        engine.stop()
    assert len(num_computed) == num_answers * num_calls
    return sum(num_computed) / len(num_computed)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Callable[[TransformersModel], TransformersModel]:
    """Makes each token take ``TOKEN_S`` more by the clock, which is put forward."""
    ahead_s, clock = 0.0, time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + ahead_s)

    def slowed(model: TransformersModel) -> TransformersModel:
        plain = model.forward

        def forward(requests: Sequence[ForwardRequest]) -> list[Logits | None]:
            nonlocal ahead_s
            before = sum(each.sequence.num_computed_tokens for each in requests)
            results = plain(requests)
            after = sum(each.sequence.num_computed_tokens for each in requests)
            ahead_s += (after - before) * TOKEN_S
            return results

        monkeypatch.setattr(model, "forward", forward)
        return model

    return slowed


def test_an_idle_replica_waits_for_callers_as_long_as_the_prefix_that_waits_would_take():
    pace = Rereads()
    pace.began(800)
    assert pace.puts_off(800)
    assert pace.patience_s == rereads.AWAY_S  # it is not known yet how long that takes
    pace.computed(0, 9.0)
    pace.computed(250, 0.05)
    assert pace.patience_s == pytest.approx(0.16)
    pace.puts_off(10)  # behind the other
    assert pace.patience_s == pytest.approx(0.16)
    pace.look_again()
    pace.puts_off(10)  # the other has gone
    assert pace.patience_s == rereads.AWAY_S
    pace.puts_off(100_000)
    assert pace.patience_s == rereads.LONGEST_S


def test_while_others_work_a_prefix_waits_for_a_few_times_as_long_as_it_takes():
    pace = Rereads()
    pace.began(800)
    assert pace.turn_s == inf  # nobody waits
    pace.puts_off(800)
    pace.computed(250, 0.05)
    assert pace.turn_s == pytest.approx(rereads.TURN * 0.16)
    pace.look_again()
    assert pace.turn_s == inf


async def test_more_answers_than_the_cache_holds_do_not_read_their_texts_with_every_call(load):
    """With one answer too many, the least recently used blocks are those that are needed next."""
    assert await computed_per_call(load("qwen2", cache_tokens=4 * 128)) < 20


async def test_the_time_in_which_a_text_is_read_does_not_count_as_silence(load, slow):
    """Else the next text would be read at once, and evict the one that was just read."""
    model = slow(load("qwen2", cache_tokens=128, chunk_tokens=32))
    assert await computed_per_call(model, num_answers=4) < 25


@pytest.mark.parametrize(("num_fit", "num_answers"), [(1, 2), (2, 4)])
async def test_callers_that_are_away_for_less_time_than_a_text_takes_are_waited_for(
    load, slow, monkeypatch, num_fit, num_answers
):
    monkeypatch.setattr(rereads, "AWAY_S", 0.005)
    model = slow(load("qwen2", cache_tokens=num_fit * 128))
    assert await computed_per_call(model, num_answers=num_answers, away_s=0.02) < 25

"""The script in Redis against the same decision in Python, over random histories."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from specmesh.confidence.release import Escalation, Gathering, Waiting
from specmesh.confidence.request_store import RequestStore

if TYPE_CHECKING:
    from tests.serving.conftest import RedisServer

FAR_S = 60.0
SESSIONS = st.sampled_from(["a", "b", "c", 'quoted "d"', "é\x00"])
REQUEST = st.tuples(
    SESSIONS,
    st.sampled_from([-math.inf, -2.5, -1.0, -0.1, 0.0]),
    st.sampled_from([FAR_S, FAR_S, FAR_S, 0.0]),  # due: hardly ever at once
)
TURN = st.fixed_dictionaries(
    {
        "added": st.lists(REQUEST, max_size=4),
        "withdrawn": st.lists(st.integers(0, 20), max_size=2),
        "seen": st.lists(SESSIONS, max_size=2),
    }
)


class Both:
    """One replica in Redis, and a process of its own."""

    def __init__(self, max_batch: int) -> None:
        self.gathering = Gathering(max_batch)
        self.count = 0

    def requests(self, added: Sequence[tuple[str, float, float]]) -> list[Waiting]:
        waiting = []
        for session_id, confidence, due in added:
            escalation = Escalation(session_id, 2**32 - 1, b"\x00\xff", confidence)
            waiting.append(Waiting(self.count, escalation, due))
            self.count += 1
        return waiting

    def expected(self, waiting, withdrawn, seen) -> list[list[int]]:
        for session_id in seen:
            self.gathering.see(session_id, 0.0)
        for each in waiting:
            self.gathering.add(each)
        for number in withdrawn:
            self.gathering.withdraw(number)
        return [[each.number for each in batch] for batch in self.gathering.release(0.0)]


async def run(url: str, turns, max_batch: int) -> None:
    async with Redis.from_url(url) as redis:
        await redis.flushdb()
    store, both = RequestStore.from_url(url, max_batch=max_batch, timeout_s=20), Both(max_batch)
    try:
        async with store.join() as membership:
            for turn in turns:
                waiting = both.requests(turn["added"])
                seen = [*turn["seen"], *(each.escalation.session_id for each in waiting)]
                expected = both.expected(waiting, turn["withdrawn"], seen)
                taken = await membership.turn(
                    0.0, added=waiting, withdrawn=turn["withdrawn"], seen=seen
                )
                assert [list(part.numbers) for part in taken.parts] == expected
                assert [part.batch_size for part in taken.parts] == list(map(len, expected))
                assert (taken.due_in_s is None) == (both.gathering.due is None)
                if taken.due_in_s is not None:
                    assert 0 < taken.due_in_s <= FAR_S
    finally:
        await store.aclose()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turns=st.lists(TURN, max_size=12), max_batch=st.integers(1, 5))
def test_the_script_releases_what_the_decision_says(redis_server: RedisServer, turns, max_batch):
    asyncio.run(run(redis_server.url, turns, max_batch))

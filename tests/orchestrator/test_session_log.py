"""How a session is written to a store that loses it."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from redis.asyncio import Redis
from tests.schedules.clock import VirtualLoop

from specmesh.orchestrator.answers.session_log import LONGEST_BACKOFF_S, SessionLog
from specmesh.orchestrator.strategies.commands import StopReason
from specmesh.serving.store.patience import StorePatience
from specmesh.serving.store.session_store import SessionStore
from specmesh.serving.store.stored_session import (
    Claim,
    Generated,
    SessionNotFound,
    SessionStart,
    StoreConflict,
    Writer,
)

SESSION = SessionStart(Claim("s", b"secret", ""), model="", request=b"", prompt=(1, 2))
WRITER = Writer(1, "writer")
REASON = StopReason.END_OF_TEXT


class LosingStore:
    """Takes whole sessions, and loses each of the first ``num_losses`` before it is finished."""

    address = trouble = ""

    def __init__(self, num_losses: int) -> None:
        self.patience = StorePatience()
        self.put_at: list[float] = []
        self._left = num_losses

    async def put(self, *_: object) -> None:
        self.put_at.append(asyncio.get_running_loop().time())

    async def finish(self, *_: object) -> None:
        if self._left:
            self._left -= 1
            raise StoreConflict("lost") if self._left % 2 else SessionNotFound("lost")


def log_on(store: Any) -> SessionLog:
    return SessionLog(store, SESSION, WRITER, Generated((3,)), Random(1), is_stored=False)


def put_times(num_losses: int) -> list[float]:
    """The times at which a session is put that is lost so often before it is finished."""
    store = LosingStore(num_losses)

    async def finish() -> None:
        log = log_on(store)
        async with log.open():
            await log.finish(REASON)
            await asyncio.sleep(100 * LONGEST_BACKOFF_S)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(finish())
    return store.put_at


def test_a_session_that_was_lost_once_is_put_again_at_once():
    assert put_times(num_losses=1) == [0, 0]


def test_a_session_that_is_lost_again_and_again_is_put_at_growing_intervals():
    first, second, *later = put_times(num_losses=12)
    assert first == second == 0
    pauses = [after - before for before, after in zip([second, *later], later, strict=False)]
    assert len(pauses) == 11
    assert 0 < pauses[0] < pauses[-1] <= LONGEST_BACKOFF_S


async def test_an_answer_is_finished_although_a_token_of_nobody_follows_its_own(redis_server):
    store = SessionStore.from_url(redis_server.url, timeout_s=10)
    log = log_on(store)
    async with log.open(), Redis.from_url(redis_server.url) as redis:
        await redis.append("specmesh:{s}:tokens", b"\x05\0\0\0")
        await log.finish(REASON)
        async with asyncio.timeout(10):
            while not (stored := await store.read(SESSION.claim)).ended:
                await log.finish(REASON)
    await store.aclose()
    assert (stored.generated, stored.ended) == (Generated((3,)), REASON.name)

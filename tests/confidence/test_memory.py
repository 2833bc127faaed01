"""What the service remembers: sessions at work, and no others."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from weakref import WeakSet

import pytest

from specmesh.confidence import request_cache
from specmesh.confidence.release import LIVE_S

if TYPE_CHECKING:
    from tests.confidence.conftest import MakeReplica

STEP_S = LIVE_S / 8


class SessionId(str):
    """Tells when it has been forgotten."""

    __slots__ = ("__weakref__",)


class Clock:
    """Stands in for the module ``time``."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(request_cache, "time", clock)
    return clock


async def test_sessions_of_which_every_token_is_kept_are_forgotten(
    clock: Clock, replica: MakeReplica
):
    one = replica()
    remembered: WeakSet[SessionId] = WeakSet()
    for number in range(300):
        clock.now += STEP_S
        session_id = SessionId(f"session-{number}")
        remembered.add(session_id)
        one.cache.see(session_id)
    del session_id
    assert len(remembered) <= LIVE_S / STEP_S


async def test_a_session_that_was_seen_long_ago_is_waited_for_no_longer(
    clock: Clock, replica: MakeReplica
):
    one = replica()
    one.cache.see("gone")
    clock.now += 2 * LIVE_S
    assert (await one.ask("a")).batch_size == 1

"""The wait of a forward for the calls that the last one answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import numpy as np
import pytest

from specmesh.decoding.predict.returns import LONGEST_SHARE, WINDOW, Returns
from specmesh.decoding.trees.tree import EMPTY
from specmesh.inference.engine.engine import Engine
from specmesh.inference.engine.job import Job
from specmesh.inference.model import ForwardRequest

FORWARD_S = 0.04


class Server:
    """A server of forwards on a virtual clock, whose callers come back ``return_s`` later."""

    def __init__(self, return_s: float, row_s: float = 0.0, fixed_s: float = FORWARD_S) -> None:
        self.returns = Returns()
        self.now = 0.0
        self._return_s = return_s
        self._row_s, self._fixed_s = row_s, fixed_s

    def forward(self, num_calls: int, *, come_back: bool = True) -> None:
        """Run a forward and let its callers return; rows vary, as drafts do."""
        num_rows = num_calls * (1 + round(self.now * 1e3) % 3)
        seconds = self._fixed_s + num_rows * self._row_s
        self.now += seconds
        self.returns.computed(num_rows, seconds)
        self.returns.answered(num_calls, self.now)
        for _ in range(num_calls if come_back else 0):
            self.returns.arrived(self.now + self._return_s)
        self.now += self._return_s

    def patience_s(self, num_calls: int = 2, num_ready: int = 1) -> float:
        """Return how long the next forward, for which ``num_ready`` wait, would wait for
        ``num_calls`` just answered."""
        self.returns.answered(num_calls, self.now)
        return max(0.0, self.returns.awaited_until(num_ready, self.now) - self.now)


def test_a_forward_waits_for_callers_that_come_back_soon_and_not_much_longer_than_they_take():
    server = Server(return_s=0.002)
    for _ in range(20):
        server.forward(2)
    assert 0.002 < server.patience_s() <= 0.004


def test_nothing_is_waited_for_once_all_have_come_back():
    server = Server(return_s=0.002)
    for _ in range(20):
        server.forward(2)
    server.returns.answered(2, server.now)
    server.returns.arrived(server.now + 0.001)
    assert server.returns.awaited_until(1, server.now) > server.now
    server.returns.arrived(server.now + 0.002)
    assert server.returns.awaited_until(2, server.now) < server.now


def test_a_wait_never_takes_more_than_a_share_of_a_forward():
    server = Server(return_s=0.7 * LONGEST_SHARE * FORWARD_S)
    for _ in range(20):
        server.forward(4)
    assert 0 < server.patience_s() <= LONGEST_SHARE * FORWARD_S + 1e-9


def test_of_callers_that_come_back_together_the_last_ones_are_awaited_too():
    """A moment is not lost: they are due now."""
    server = Server(return_s=0.1 * FORWARD_S)
    for _ in range(20):
        server.forward(32)
    returns, now = server.returns, server.now
    returns.answered(32, now)
    back = now + 0.1 * FORWARD_S
    for _ in range(28):
        returns.arrived(back)
    assert returns.awaited_until(60, back) > back


def test_many_do_not_wait_for_one():
    """They would lose more together than it can save."""
    server = Server(return_s=0.2 * FORWARD_S)
    for _ in range(20):
        server.forward(4)
    assert server.patience_s(num_calls=8, num_ready=8) > 0
    assert server.patience_s(num_calls=1, num_ready=60) == 0


def test_callers_that_take_longer_than_the_longest_wait_are_not_waited_for():
    server = Server(return_s=0.5 * FORWARD_S)
    for _ in range(20):
        server.forward(2)
    assert server.patience_s() == 0


def test_callers_that_do_not_come_back_are_given_up_and_waited_for_again_once_they_do():
    server = Server(return_s=0.002)
    for _ in range(20):
        server.forward(2)
    for _ in range(WINDOW):
        server.forward(2, come_back=False)
    assert server.patience_s() == 0
    for _ in range(WINDOW):
        server.forward(2)
    assert server.patience_s() > 0


def test_forwards_that_grow_with_their_rows_do_not_wait():
    server = Server(return_s=0.002, row_s=0.02, fixed_s=0.001)
    for _ in range(40):
        server.forward(2)
    assert server.patience_s() == 0


def test_before_anything_is_known_nothing_is_waited_for():
    assert Server(return_s=0.001).patience_s() == 0


class SlowModel:
    """A model whose forward takes the same time for any number of calls."""

    max_batch = 8
    pool = None

    def __init__(self, forward_s: float) -> None:
        self.batches: list[int] = []
        self._forward_s = forward_s

    def forward(self, asks: Sequence[ForwardRequest]):
        self.batches.append(len(asks))
        time.sleep(self._forward_s)
        return [np.zeros((1, 1), np.float32) for _ in asks]


class Row:
    """A sequence that a job asks with."""

    def __init__(self, job: Job) -> None:
        self.cancellation = job.cancellation


@pytest.mark.parametrize("num_callers", [2, 4])
async def test_callers_that_begin_at_odds_come_to_share_every_forward(num_callers):
    model = SlowModel(forward_s=0.05)
    engine = Engine(lambda: model, max_queue=16)
    await engine.ready()

    def work(job: Job):
        yield ForwardRequest(Row(job), EMPTY)
        yield None

    async def caller(number: int) -> None:
        await asyncio.sleep(0.06 * (number % 2))  # half of them during a forward of the others
        for _ in range(30):
            await engine.run(work)

    await asyncio.gather(*(caller(number) for number in range(num_callers)))
    await asyncio.to_thread(engine.stop)
    # By turns they would need 60 forwards; it takes some to learn that they come back.
    assert len(model.batches) <= 45

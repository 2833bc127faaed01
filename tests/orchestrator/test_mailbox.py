"""What one task leaves for another."""

from __future__ import annotations

import asyncio

import pytest

from specmesh.orchestrator.driver.mailbox import Mailbox


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_what_is_left_is_taken_in_its_order_without_waiting():
    mailbox: Mailbox[int] = Mailbox()
    mailbox.put(1)
    mailbox.put(2)
    await mailbox.wait(now() - 1)
    assert [mailbox.take(), mailbox.take()] == [1, 2]
    assert not mailbox
    with pytest.raises(IndexError):
        mailbox.take()


@pytest.mark.parametrize("left", [True, False])
async def test_who_waits_is_woken_by_what_is_left_or_without_any(left: bool):
    mailbox: Mailbox[int] = Mailbox()
    waiting = asyncio.create_task(mailbox.wait(now() + 60))
    await asyncio.sleep(0)
    for _ in range(2):
        mailbox.put(1) if left else mailbox.wake()
    await asyncio.wait_for(waiting, 10)
    assert len(mailbox) == 2 * left


async def test_nobody_waits_beyond_the_time():
    mailbox: Mailbox[int] = Mailbox()
    by = now() + 0.02
    await asyncio.wait_for(mailbox.wait(by), 10)
    assert now() >= by
    assert not mailbox


async def test_who_is_cancelled_leaves_the_mailbox_to_the_next():
    mailbox: Mailbox[int] = Mailbox()
    waiting = asyncio.create_task(mailbox.wait(now() + 60))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    mailbox.put(1)
    await mailbox.wait(now() + 60)
    assert mailbox.take() == 1

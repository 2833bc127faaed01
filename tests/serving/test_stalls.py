"""Messages wait for their readers, but not for ever."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any, cast

import pytest

from specmesh.serving.errors import UnavailableStatus
from specmesh.serving.rpc.stalls import Stalls

STALL_S = 0.2


class Reader:
    """Takes a message once it ``reads``; stands in for a call's context."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.messages: list[object] = []
        self.num_broken_off = 0

    async def write(self, message: object) -> None:
        try:
            await self.reads.wait()
        except asyncio.CancelledError:
            self.num_broken_off += 1
            raise
        self.messages.append(message)


def sending(stalls: Stalls, reader: Reader) -> asyncio.Task[None]:
    return asyncio.create_task(stalls.write(cast("Any", reader), "message"))


async def test_a_message_that_nobody_takes_is_given_up_and_others_are_not():
    stalls, stalled, slow = Stalls(STALL_S), Reader(), Reader()
    began = time.monotonic()
    first = sending(stalls, stalled)
    await asyncio.sleep(STALL_S / 2)
    second = sending(stalls, slow)
    with pytest.raises(UnavailableStatus) as refusal:
        await first
    assert time.monotonic() - began >= STALL_S
    assert refusal.value.reason == "READER_STALLED"
    slow.reads.set()
    await second
    assert (stalled.messages, slow.messages) == ([], ["message"])


async def test_a_process_that_was_stopped_gives_up_nothing():
    stalls, reader = Stalls(STALL_S), Reader()
    sent = sending(stalls, reader)
    await asyncio.sleep(STALL_S / 8)
    time.sleep(3 * STALL_S)  # noqa: ASYNC251 - no loop of a stopped process turns
    asyncio.get_running_loop().call_later(STALL_S / 8, reader.reads.set)
    await sent
    assert reader.messages == ["message"]


async def test_a_caller_that_leaves_while_its_message_waits_is_cancelled_and_not_cut_off():
    stalls, reader = Stalls(STALL_S), Reader()
    sent = sending(stalls, reader)
    await asyncio.sleep(0)
    sent.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sent


async def test_a_write_that_is_cancelled_is_left_to_grpc_to_end():
    stalls, reader = Stalls(STALL_S), Reader()
    sent = sending(stalls, reader)
    await asyncio.sleep(0)
    sent.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sent
    reader.reads.set()
    await asyncio.sleep(0.01)
    assert (reader.num_broken_off, reader.messages) == (0, ["message"])


async def test_the_write_of_a_call_that_was_cancelled_may_fail_without_a_word(caplog):
    class Gone(Reader):
        async def write(self, message: object) -> None:
            await super().write(message)
            raise ConnectionError("nobody listens")

    stalls, reader = Stalls(STALL_S), Gone()
    sent = sending(stalls, reader)
    await asyncio.sleep(0)
    sent.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sent
    reader.reads.set()
    await asyncio.sleep(0.01)
    gc.collect()
    assert reader.messages == ["message"]
    assert not caplog.records

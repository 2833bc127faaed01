"""Messages are taken as they are read, and no operation of gRPC's is broken off."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable

import grpc
import grpc.aio
import pytest

from specmesh.orchestrator.replicas.transport.exchange import exchange
from specmesh.orchestrator.replicas.transport.inbox import Inbox, Take
from specmesh.orchestrator.replicas.transport.open_call import OpenCall
from specmesh.orchestrator.replicas.transport.stream_pool import StreamPool


def soon(seconds: float = 10) -> float:
    return asyncio.get_running_loop().time() + seconds


async def each(call: OpenCall[None, object], take: Take[object], by: float) -> None:
    inbox: Inbox[object] = Inbox()
    call.receiver = inbox
    await inbox.each(take, by)


async def read(call: OpenCall[None, object]) -> None:
    await each(call, lambda message: None, soon())


class SlowCall:
    """Stands in for a gRPC call: open once ``opened`` is set, ended by the message EOF."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[object] = asyncio.Queue()
        self.opened = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.num_broken_off = 0

    def cancel(self) -> None:
        self.cancelled.set()
        self.messages.put_nowait(grpc.aio.EOF)

    async def initial_metadata(self) -> None:
        await self._unbroken(self.opened.wait())

    async def write(self, request: object) -> None:
        await self._unbroken(self.cancelled.wait())

    async def read(self) -> object:
        message = await self._unbroken(self.messages.get())
        if self.cancelled.is_set():
            raise asyncio.CancelledError
        return message

    async def _unbroken(self, operation: Awaitable[object]) -> object:
        try:
            return await operation
        except asyncio.CancelledError:
            self.num_broken_off += 1
            raise


@pytest.mark.parametrize("opened", [True, False])
async def test_a_cancelled_request_leaves_it_to_grpc_to_end_what_it_waits_for(opened: bool):
    call = SlowCall()
    if opened:
        call.opened.set()
    asked = OpenCall(call)
    reading = asyncio.create_task(read(asked))
    await asyncio.sleep(0)
    reading.cancel()
    asked.cancel()
    await asyncio.wait([reading])
    assert asked.over
    assert call.cancelled.is_set() == opened
    call.opened.set()
    await asyncio.wait_for(call.cancelled.wait(), 10)
    assert call.num_broken_off == 0


async def test_a_request_that_is_cancelled_while_it_is_sent_leaves_that_to_grpc(opened):
    call, _ = opened
    pool: StreamPool[object, object] = StreamPool(lambda: call)

    async def ask() -> None:
        with exchange(pool, "a request", soon()) as sent:
            await sent.read()

    asking = asyncio.create_task(ask())
    await settled()
    asking.cancel()
    await asyncio.wait([asking])
    assert call.cancelled.is_set()
    assert call.num_broken_off == 0


@pytest.mark.parametrize(
    ("error", "told"),
    [(ValueError("not to be encoded"), ValueError), (asyncio.CancelledError(), grpc.RpcError)],
)
async def test_a_request_that_cannot_be_sent_ends_the_call_for_its_reader(opened, error, told):
    call, asked = opened

    async def write(request: object) -> None:
        await asyncio.sleep(0)
        raise error

    call.write = write
    asked.write(None)
    with pytest.raises(told):
        await asyncio.wait_for(read(asked), 10)


async def test_what_ended_a_call_is_told_and_the_call_is_over():
    call = SlowCall()
    call.opened.set()
    call.messages.put_nowait(grpc.aio.EOF)
    ended = OpenCall(call)
    with pytest.raises(grpc.aio.AioRpcError, match="the peer ended the call"):
        await read(ended)
    assert ended.over


async def test_a_call_that_is_cancelled_tells_nothing_more(opened):
    call, asked = opened
    told: list[object] = []
    inbox: Inbox[object] = Inbox()
    asked.receiver = inbox
    asked.cancel()
    call.messages.put_nowait(1)
    with pytest.raises(grpc.aio.AioRpcError, match="no answer in time"):
        await inbox.each(told.append, soon(0.05))
    assert told == []


@pytest.fixture
async def opened() -> tuple[SlowCall, OpenCall[None, object]]:
    call = SlowCall()
    call.opened.set()
    return call, OpenCall(call)


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_messages_are_taken_in_their_order_the_early_ones_too(opened):
    call, asked = opened
    asked.receiver = inbox = Inbox()
    for number in range(3):
        call.messages.put_nowait(number)
    await settled()
    taken: list[object] = []

    def take(message: object) -> float | None:
        taken.append(message)
        return None if message in {1, 4} else soon()

    await inbox.each(take, soon())
    assert taken == [0, 1]
    call.messages.put_nowait(3)
    call.messages.put_nowait(4)
    await inbox.each(take, soon())
    assert taken == [0, 1, 2, 3, 4]


async def test_what_breaks_the_taking_is_raised_and_nothing_more_is_taken(opened):
    call, asked = opened
    taken: list[object] = []

    def take(message: object) -> float:
        taken.append(message)
        raise KeyError(message)

    taking = asyncio.create_task(each(asked, take, soon()))
    await settled()
    call.messages.put_nowait(1)
    call.messages.put_nowait(2)
    with pytest.raises(KeyError):
        await taking
    assert taken == [1]


@pytest.mark.parametrize(
    ("first_s", "comes", "next_s"), [(0.02, False, 10), (10, True, 0.02), (0.02, True, 0.04)]
)
async def test_each_message_has_its_own_time(opened, first_s: float, comes: bool, next_s: float):
    call, asked = opened
    asked.receiver = inbox = Inbox()
    if comes:
        call.messages.put_nowait("in time")
    began = time.monotonic()
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await asyncio.wait_for(inbox.each(lambda message: soon(next_s), soon(first_s)), 5)
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert time.monotonic() - began >= (next_s if comes else first_s) * 0.9


CORE = grpc.aio.AioRpcError(
    grpc.StatusCode.INTERNAL, grpc.aio.Metadata(), grpc.aio.Metadata(), "Internal error from Core"
)
"""The error that gRPC raises from reads and writes if a peer is gone while a request is sent."""


@pytest.mark.parametrize("reader_first", [True, False])
async def test_a_call_that_breaks_while_a_request_is_sent_is_unavailable(opened, reader_first):
    call, asked = opened

    async def write(request: object) -> None:
        await asyncio.sleep(0)
        call.messages.put_nowait("broken")
        if reader_first:
            await settled()
        raise CORE

    async def read_core() -> object:
        await call.messages.get()
        raise CORE

    await settled()  # its first read is under way
    call.messages.put_nowait("a message")
    call.read, call.write = read_core, write
    asked.receiver = inbox = Inbox()
    await asyncio.sleep(0)
    asked.write(None)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await asyncio.wait_for(inbox.each(lambda message: soon(), soon()), 10)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_an_internal_error_of_the_peer_stays_one(opened):
    call, asked = opened

    async def fail() -> object:
        await call.messages.get()
        raise CORE

    await settled()
    call.messages.put_nowait("a message")
    call.read = fail
    asked.receiver = inbox = Inbox()
    call.messages.put_nowait("the end")
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await asyncio.wait_for(inbox.each(lambda message: soon(), soon()), 10)
    assert raised.value.code() is grpc.StatusCode.INTERNAL

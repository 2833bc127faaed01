"""gRPC's wake-ups cost no turns of the event loop for nothing, and never fill their socket."""

import asyncio
import fcntl
import socket
import sys
import termios
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import grpc
import pytest
import uvloop

from specmesh.serving.process.event_loop import GrpcEventLoop
from specmesh.serving.process.server_loop import ServerLoop

NUM_CALLS = 200
NUM_ACCEPTED = 40
MOST_TURNS = 3.0
"""The turns of its loop in which a busy server accepts a call, at most. gRPC 1.83 takes one or two,
1.84 and 1.85 take five."""


@pytest.fixture
def address():
    """The address of a server, in threads of its own, that answers each call with its request."""
    server = grpc.server(ThreadPoolExecutor(1))
    methods = {"Answer": grpc.unary_unary_rpc_method_handler(lambda request, context: request)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


class Watching:
    """Before a class of event loops: it knows gRPC's poller."""

    poller = None

    def add_reader(self, fd, callback, *args):
        if "PollerCompletionQueue" in repr(callback):
            self.poller = fd
        super().add_reader(fd, callback, *args)


class WatchedServerLoop(Watching, ServerLoop):
    pass


class WatchedUvloop(Watching, uvloop.Loop):
    pass


class WatchedGrpcEventLoop(Watching, GrpcEventLoop):
    pass


def run(main, make):
    with asyncio.Runner(loop_factory=make) as runner:
        return runner.run(main)


def num_wake_ups(loop):
    """The bytes that wait in the socket of gRPC's poller."""
    assert loop.poller is not None, "gRPC's poller no longer wakes the loop by a socket"
    count = bytearray(4)
    fcntl.ioctl(loop.poller, termios.FIONREAD, count)
    return int.from_bytes(count, sys.byteorder)


def wait_for_wake_ups(loop):
    """Keep the loop busy until most calls have been answered."""
    deadline_s = time.monotonic() + 30
    while num_wake_ups(loop) < NUM_CALLS * 3 / 4 and time.monotonic() < deadline_s:
        time.sleep(0.001)


async def left_after_a_turn(address):
    """The wake-ups that wait when calls that were answered all at once have been noticed."""
    loop = asyncio.get_running_loop()
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary("/test.Echo/Answer")
        await call(b"")
        calls = [call(b"") for _ in range(NUM_CALLS)]
        await asyncio.sleep(0)  # they begin
        wait_for_wake_ups(loop)
        await asyncio.sleep(0)  # gRPC's handler is called
        await asyncio.sleep(0)
        left = num_wake_ups(loop)
        await asyncio.gather(*calls)
        return left


@pytest.mark.parametrize("make", [WatchedServerLoop, WatchedGrpcEventLoop])
def test_the_wake_ups_of_many_calls_are_taken_as_they_come(address, make):
    assert run(left_after_a_turn(address), make) < NUM_CALLS / 10


def test_without_this_loop_they_would_pile_up(address):
    # Once gRPC reads them all itself, this fails, and these loops may go. On a busy machine none
    # may be left for once.
    left = max(run(left_after_a_turn(address), WatchedUvloop) for _ in range(3))
    assert left > NUM_CALLS / 4


@pytest.mark.parametrize("make", [lambda handle: handle, partial])
def test_other_readers_find_every_byte(make):
    async def read():
        loop = asyncio.get_running_loop()
        found = loop.create_future()
        here, there = socket.socketpair()
        with here, there:
            loop.add_reader(here, make(lambda: found.done() or found.set_result(here.recv(8))))
            there.send(b"several")
            return await found

    assert run(read(), ServerLoop) == b"several"


async def turns_per_call():
    """The turns of a busy server's loop from one accepted call to the next, while many wait."""
    loop, num_turns, accepted_at = asyncio.get_running_loop(), 0, []

    def turn():
        nonlocal num_turns
        num_turns += 1
        time.sleep(0.002)  # gRPC's threads go on meanwhile
        if len(accepted_at) < NUM_ACCEPTED:
            loop.call_soon(turn)

    async def answer(request, context):
        accepted_at.append(num_turns)
        return request

    server = grpc.aio.server()
    methods = {"Answer": grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/test.Echo/Answer")
        await asyncio.to_thread(call, b"", wait_for_ready=True)
        accepted_at.clear()
        turn()
        calls = [call.future(b"") for _ in range(NUM_ACCEPTED)]
        await asyncio.to_thread(lambda: [each.result() for each in calls])
    await server.stop(None)
    return (accepted_at[-1] - accepted_at[0]) / (NUM_ACCEPTED - 1)


def test_a_busy_server_accepts_a_call_in_few_turns():
    # The calls of a load come faster than that otherwise, and each waits for all before it.
    assert run(turns_per_call(), ServerLoop) < MOST_TURNS


def test_the_clock_of_servers_goes_on_while_a_callback_runs():
    async def passed_s():
        now = asyncio.get_running_loop().time
        began = now()
        time.sleep(0.0002)  # noqa: ASYNC251 - a callback that takes long
        return now() - began

    assert run(passed_s(), ServerLoop) >= 0.0002

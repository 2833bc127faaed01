"""The event loop behind the synchronous client: one thread for all clients of a process.

A fork leaves threads behind, and gRPC with calls under way does not outlive one. So before a
fork all connections are closed; parent and child then make their own when they need them. An
answer that is being read breaks by that like one whose connection is lost, and goes on in the
parent; the child has no part in it.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import logging
import os
import threading
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar
from weakref import WeakSet

from specmesh.client.client import AsyncClient

T = TypeVar("T")

logger = logging.getLogger("specmesh.client")

_PATIENCE_S = 5.0
"""How long the end of the process, or a fork, waits for connections to close."""
_PAUSES_S = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Between looks at whether gRPC has shut down: calls that were closed end in threads of its own."""


class Background:
    """An event loop in a thread that is started when it is first needed, in each process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._clients: WeakSet[AsyncClient] = WeakSet()

    def serves(self, client: AsyncClient) -> None:
        """Record whose connections are to be closed at the end, and before a fork."""
        self._clients.add(client)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What ``work`` returns; it sees the caller's context variables.

        An exception in the waiting thread, KeyboardInterrupt say, cancels it.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a hook can't call the client that it belongs to")
        loop = self._running()
        # Made before ``work`` is handed over: an interrupt may come right after that, when the
        # mesh is asked already and nothing waits here yet.
        outcome: Future[T] = Future()
        try:
            loop.call_soon_threadsafe(_begin, work, outcome)
            return outcome.result()
        except BaseException:
            outcome.cancel()
            raise

    def before_fork(self) -> None:
        """Close all connections, and open none until `after_fork_in_parent`."""
        self._lock.acquire()
        self._close_connections()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        if self._loop is not None:
            for client in self._clients:
                self._loop.call_soon_threadsafe(client.reopen)
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Begin anew: the thread has stayed with the parent."""
        self._loop = self._thread = None
        self._lock = threading.Lock()

    def stop(self) -> None:
        """End the calls under way, and the thread."""
        with self._lock:
            self._close_connections()
            if self._loop is not None and self._thread is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join(_PATIENCE_S)
                if not self._thread.is_alive():
                    self._loop.close()
            self._loop = self._thread = None

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(
                    target=loop.run_forever, name="specmesh-client", daemon=True
                )
                thread.start()
                # Once it runs: an interrupt before that leaves no loop that nobody runs.
                self._loop, self._thread = loop, thread
            return self._loop

    def _close_connections(self) -> None:
        """Of a loop that runs; gives up after a while, for what comes next must not hang."""
        if self._loop is None or threading.current_thread() is self._thread:
            return
        closed = asyncio.run_coroutine_threadsafe(_suspend(tuple(self._clients)), self._loop)
        try:
            closed.result(_PATIENCE_S)
        except TimeoutError:
            logger.warning("connections did not close within %g s", _PATIENCE_S)


def _begin(work: Coroutine[Any, Any, T], outcome: Future[T]) -> None:
    """Run ``work`` on this thread's loop for ``outcome``, which cancels it if cancelled."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)

    def end(task: asyncio.Task[T]) -> None:
        if task.cancelled():
            outcome.cancel()
            return
        error = task.exception()
        if not outcome.set_running_or_notify_cancel():
            return  # nobody waits for it any more
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(task.result())

    def leave(outcome: Future[T]) -> None:
        if outcome.cancelled():
            loop.call_soon_threadsafe(task.cancel)

    task.add_done_callback(end)
    outcome.add_done_callback(leave)


async def _suspend(clients: Iterable[AsyncClient]) -> None:
    for client in clients:
        await client.suspend()
    for pause_s in _PAUSES_S:
        await asyncio.sleep(pause_s)
        # gRPC shuts down with the last object of its own. Calls that broke are in cycles; those
        # with interceptors are read by generators besides, which the loop closes once found.
        gc.collect()
        if not _grpc_polls():
            return
    logger.debug("gRPC goes on: others in this process use it")


def _grpc_polls() -> bool:
    """Whether gRPC's thread for event loops runs, which is its last to be ended. A child that is
    forked before that waits for ever for what the thread would have brought."""
    return any("_poll_wrapper" in thread.name for thread in threading.enumerate())


background = Background()
atexit.register(background.stop)
if hasattr(os, "register_at_fork"):  # Not on Windows, which has no fork either.
    os.register_at_fork(
        before=background.before_fork,
        after_in_parent=background.after_fork_in_parent,
        after_in_child=background.after_fork_in_child,
    )

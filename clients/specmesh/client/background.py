"""The event loop behind the synchronous client: one thread for all clients of a process.

A fork does not copy threads, and gRPC does not survive one while calls are open. So all
connections are closed before a fork, and parent and child open their own when they need them. To
an answer that is being read this is a lost connection: the parent resumes it, the child does not.
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

_LONGEST_WAIT_S = 0.5
"""Longest wait for a result at a time: no interrupt goes unnoticed for longer."""
_PATIENCE_S = 5.0
"""Longest wait for connections to close, at process exit or before a fork."""
_PAUSES_S = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Pauses between checks that gRPC has shut down: it ends closed calls in threads of its own."""


class Background:
    """An event loop in a background thread, which each process starts on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._clients: WeakSet[AsyncClient] = WeakSet()
        self._has_ended = False

    def serves(self, client: AsyncClient) -> None:
        """Register a client, whose connections are closed at exit and before a fork."""
        self._clients.add(client)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` in the caller's context variables, and return its result.

        An exception in the waiting thread, such as KeyboardInterrupt, cancels it.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a hook can't call its own client")
        if self._has_ended:  # a thread that is started now never runs
            work.close()
            raise RuntimeError("the process is ending, so its clients can't be used any more")
        loop = self._running()
        # Made before ``work`` is handed over: an interrupt right after that must find it, to cancel
        # a request that is already on its way.
        outcome: Future[T] = Future()
        try:
            loop.call_soon_threadsafe(_begin, work, outcome)
            return _result_of(outcome)
        except BaseException:
            outcome.cancel()
            raise

    def close(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work``, which closes something, unless `stop` has already closed everything."""
        if self._has_ended:
            work.close()
        else:
            self.run(work)

    def abandon(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin ``work``, which closes something that nobody holds any more, without waiting.

        Python collects garbage on any thread and in the middle of anything: on the loop's own
        thread, while our lock is held, and while the process ends.
        """
        loop = self._loop
        if loop is None or loop.is_closed():
            work.close()
        else:
            loop.call_soon_threadsafe(_begin, work, Future[None]())

    def before_fork(self) -> None:
        """Close all connections; none is opened until `after_fork_in_parent`."""
        self._lock.acquire()
        self._close_connections()

    def after_fork_in_parent(self) -> None:
        """Let all clients connect again."""
        if self._loop is not None:
            for client in self._clients:
                self._loop.call_soon_threadsafe(client.reopen)
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Reset the state: a fork does not copy the thread."""
        self._loop = self._thread = None
        self._lock = threading.Lock()

    def stop(self) -> None:
        """End all open calls and the thread, for good."""
        self._has_ended = True
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
                # Set only now: an interrupt before this line must not leave a loop that never runs.
                self._loop, self._thread = loop, thread
            return self._loop

    def _close_connections(self) -> None:
        """Close the connections of a running loop; gives up after `_PATIENCE_S`, because a fork or
        an exit must not hang."""
        if self._loop is None or threading.current_thread() is self._thread:
            return
        closed = asyncio.run_coroutine_threadsafe(_suspend(tuple(self._clients)), self._loop)
        try:
            closed.result(_PATIENCE_S)
        except TimeoutError:
            logger.warning("connections did not close within %g s", _PATIENCE_S)


def _result_of(outcome: Future[T]) -> T:
    """Wait for ``outcome`` and return its result.

    A signal that arrives a moment before a wait does not end it, so the wait is begun anew.
    """
    while True:
        try:
            return outcome.result(_LONGEST_WAIT_S)
        except TimeoutError:
            if outcome.done():  # the error may be that of the work
                return outcome.result()


def _begin(work: Coroutine[Any, Any, T], outcome: Future[T]) -> None:
    """Run ``work`` on this thread's loop and put its result into ``outcome``; cancelling
    ``outcome`` cancels ``work``."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)

    def end(task: asyncio.Task[T]) -> None:
        if task.cancelled():
            outcome.cancel()
            return
        error = task.exception()
        if not outcome.set_running_or_notify_cancel():
            return  # the waiting thread has left
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
        # gRPC shuts down once its last object is freed. Broken calls are in reference cycles; those
        # with interceptors also hold generators, which the loop closes when they are collected.
        gc.collect()
        if not _grpc_polls():
            return
    logger.debug("gRPC keeps running: other code in this process uses it")


def _grpc_polls() -> bool:
    """Return whether gRPC's polling thread, the last one it ends, still runs. A child forked
    before that waits forever for events that only this thread delivers."""
    return any("_poll_wrapper" in thread.name for thread in threading.enumerate())


background = Background()
atexit.register(background.stop)
if hasattr(os, "register_at_fork"):  # Not on Windows, which has no fork either.
    os.register_at_fork(
        before=background.before_fork,
        after_in_parent=background.after_fork_in_parent,
        after_in_child=background.after_fork_in_child,
    )

"""A generator in its own process, ``python -P -m specmesh.load.generators.worker``.

The fleet starts it. It reads its orders from standard input, and ends when that closes, even if its
parent was killed.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import nullcontext
from typing import IO

from specmesh.load.generators.event_loop import precise_loop
from specmesh.load.generators.generator import Chunks, Generator, monotonic_since
from specmesh.load.generators.messages import (
    Assignment,
    Message,
    Ready,
    Start,
    WorkerBroken,
    WorkerProgress,
    WorkerResult,
    packed,
    read,
)
from specmesh.load.transports.observation import Observation, RequestOutcome
from specmesh.load.transports.tracing import exporting
from specmesh.load.transports.transport import RequestFailed

TELL_S = 0.5
"""Interval between reports of progress."""


class Worker:
    """Carries out one assignment, reading ``orders`` and writing its messages to ``said``."""

    def __init__(self, assignment: Assignment, orders: IO[bytes], said: IO[bytes]) -> None:
        self._assignment = assignment
        self._orders = orders
        self._said = said
        self._observations: list[Observation] = []
        self._num_told = 0
        self._now = monotonic_since(0.0)

    async def run(self) -> None:
        """Connect, wait for the start, send everything, and report the result."""
        try:
            async with self._assignment.door.open() as transport:
                self._say(Ready())
                start = await asyncio.to_thread(read, self._orders)
                if isinstance(start, Start):
                    self._now = monotonic_since(start.epoch_s)
                    await self._generate(
                        Generator(
                            self._assignment.workload,
                            self._assignment.part,
                            transport,
                            self._observations.append,
                            self._now,
                        )
                    )
                else:
                    self._say(WorkerResult([], Chunks()))
        except RequestFailed as failure:
            self._say(WorkerBroken(failure.reason, str(failure)))

    async def _generate(self, generator: Generator) -> None:
        # Imported modules never become garbage; without them collections are shorter.
        gc.collect()
        gc.freeze()
        sending = asyncio.create_task(generator.run())
        self._stop_when_told(sending)
        telling = asyncio.create_task(self._tell(generator))
        await asyncio.wait({sending})
        telling.cancel()
        if not sending.cancelled():
            sending.result()
        self._say(self._progress(generator))
        self._say(WorkerResult(self._observations, generator.chunks))

    def _stop_when_told(self, sending: asyncio.Task[None]) -> None:
        loop = asyncio.get_running_loop()

        def wait() -> None:
            read(self._orders)  # Stop, or the end of the stream because the parent is gone.
            try:
                loop.call_soon_threadsafe(sending.cancel)
            except RuntimeError:  # The loop has ended meanwhile.
                return

        threading.Thread(target=wait, daemon=True).start()

    async def _tell(self, generator: Generator) -> None:
        while True:
            await asyncio.sleep(TELL_S)
            self._say(self._progress(generator))

    def _progress(self, generator: Generator) -> WorkerProgress:
        progress = WorkerProgress(
            self._now(), time.process_time(), num_under_way=generator.num_under_way
        )
        new = self._observations[self._num_told :]
        self._num_told += len(new)
        for seen in new:
            progress.num_ended += 1
            progress.num_tokens += seen.num_output_tokens
            if seen.outcome is RequestOutcome.FAILED:
                progress.failures[seen.reason] += 1
            elif seen.ttft_s is not None:
                progress.ttfts_s.append(seen.ttft_s)
        return progress

    def _say(self, message: Message) -> None:
        self._said.write(packed(message))
        self._said.flush()


def main() -> None:
    """Carry out the orders from standard input; standard output carries messages only."""
    if sys.platform != "win32":
        from specmesh.serving.process.resources import allow_all_descriptors

        allow_all_descriptors()
    # Ctrl-C reaches the parent, too, which then sends Stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    said = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    assignment = read(sys.stdin.buffer)
    assert isinstance(assignment, Assignment)
    worker = Worker(assignment, sys.stdin.buffer, said)
    status = 1
    try:
        with (
            exporting() if assignment.part.traced else nullcontext(),
            asyncio.Runner(loop_factory=precise_loop) as runner,
        ):
            runner.run(worker.run())
        status = 0
    except Exception:
        traceback.print_exc()
    # A thread still reads the orders and would block the end of the interpreter.
    os._exit(status)


if __name__ == "__main__":
    main()

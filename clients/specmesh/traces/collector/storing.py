"""The path from the buffer to the store: a thread writes, so that receiving is not blocked."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from specmesh.traces.collector.arrival import ArrivedSpan, arrivals, put_together
from specmesh.traces.collector.buffer import TraceBuffer
from specmesh.traces.store.schema import StoreError
from specmesh.traces.store.stored_trace import StoredTrace
from specmesh.traces.store.writer import StoreWriter

log = logging.getLogger(__name__)

INTERVAL_S = 0.5
"""Interval at which complete traces are written."""
_TIDY_S = 60.0


class Storing:
    """The sink of the receivers, which writes the traces that are kept."""

    def __init__(self, buffer: TraceBuffer, writer: StoreWriter) -> None:
        self._buffer = buffer
        self._writer = writer
        # A single thread, since only one may use the writer.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trace-store")
        self._tidied_s = time.monotonic()
        self._num_without_ids = 0
        self._logged: Counter[str] = Counter()
        """The dropped spans that the log tells of, by reason."""

    def take(self, groups: Iterable[ResourceSpans]) -> None:
        """Add the spans of an OTLP message, except those without valid ids, which nobody could
        find."""
        self._buffer.take(self._with_ids(arrivals(groups)), time.monotonic())

    def _with_ids(self, arrived: Iterable[ArrivedSpan]) -> Iterator[ArrivedSpan]:
        for each in arrived:
            if each.has_ids:
                yield each
            else:
                self._num_without_ids += 1

    async def run(self) -> None:
        """Write complete traces until cancelled; then write the rest."""
        try:
            while True:
                await asyncio.sleep(INTERVAL_S)
                now_s = time.monotonic()
                await self._write(list(self._buffer.due(now_s)))
                if now_s - self._tidied_s > _TIDY_S:
                    self._tidied_s = now_s
                    await self._on_thread(self._tidy)
        finally:
            # The thread may still be writing; this comes after that.
            left = list(self._buffer.flush(time.monotonic()))
            self._thread.submit(self._write_now, left).result()
            self._thread.shutdown()

    async def _write(self, traces: Sequence[Sequence[ArrivedSpan]]) -> None:
        if traces:
            await self._on_thread(self._write_now, traces)
        self._tell("too many at once", self._buffer.num_dropped)
        self._tell("without valid ids", self._num_without_ids)

    def _tell(self, reason: str, num_dropped: int) -> None:
        num_new = num_dropped - self._logged[reason]
        if num_new:
            self._logged[reason] = num_dropped
            log.warning("spans dropped", extra={"count": num_new, "reason": reason})

    async def _on_thread(self, work: Callable[..., None], *arguments: object) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def _write_now(self, traces: Sequence[Sequence[ArrivedSpan]]) -> None:
        stored = [trace for trace in map(_stored, traces) if trace is not None]
        try:
            num_left_out = self._writer.add(stored)
        except Exception as error:  # the next ones may be stored again
            log.exception("traces lost", extra={"count": len(stored), "reason": str(error)})
            return
        if num_left_out:
            log.warning("traces skipped", extra={"count": num_left_out})

    def _tidy(self) -> None:
        try:
            self._writer.tidy()
        except StoreError:
            log.exception("cannot tidy the store")


def _stored(spans: Sequence[ArrivedSpan]) -> StoredTrace | None:
    """Return the stored form of a trace; None, with a line in the log, if it has none. Anybody can
    send spans, and no trace may cost the others."""
    try:
        return StoredTrace.of(put_together(spans))
    except Exception:
        log.exception("trace dropped", extra={"trace_id": spans[0].trace_id.hex()})
        return None

"""The buffer in which spans wait until the sampling decision on their trace. Pure.

A trace is sampled when its root arrives or, when none of its spans has arrived for ``patience_s``,
by its longest span and by whether any has failed. A trace that is kept leaves the buffer when none
of its spans has arrived for ``settle_s``. Spans that arrive later follow the decision: they are
handed on or dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from specmesh.traces.collector.arrival import ArrivedSpan
from specmesh.traces.collector.sampling import RootFacts, Sampler
from specmesh.traces.store.limits import StoreLimits

_OVERFLOW = 2
"""Multiple of ``max_spans`` and ``max_bytes`` that bounds the buffer also while nobody takes traces
from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferLimits:
    """Limits of the time that spans wait, and of their number and size."""

    settle_s: float = 2.0
    """Wait for further spans of a kept trace; usually long enough for all processes to send."""
    patience_s: float = 30.0
    """Longest pause between two spans of a trace without a root."""
    max_spans: int = 200_000
    """Most spans in the buffer; above this, the trace that has waited longest leaves early. Spans
    that arrive faster than traces can leave are dropped above twice as many."""
    max_bytes: int = 256 * 1024 * 1024
    """Most bytes of the spans in the buffer, each with its resource and scope; above this, the same
    happens as above ``max_spans``."""
    max_spans_of_trace: int = StoreLimits().max_joined_spans
    """Most spans of one trace besides its root; further ones are dropped."""
    num_remembered: int = 100_000
    """Number of past decisions that are remembered for late spans."""


@dataclass(slots=True)
class _Trace:
    spans: list[ArrivedSpan] = field(default_factory=list)
    num_bytes: int = 0
    last_s: float = 0.0


class TraceBuffer:
    """A buffer that turns spans into traces; every ``now_s`` is of the same monotonic clock."""

    def __init__(self, sampler: Sampler, limits: BufferLimits) -> None:
        self.num_dropped = 0
        """Number of spans dropped because their trace, or the whole buffer, was too large."""
        self._sampler = sampler
        self._limits = limits
        # Both are in the order in which their last span arrived.
        self._undecided: OrderedDict[bytes, _Trace] = OrderedDict()
        self._kept: OrderedDict[bytes, _Trace] = OrderedDict()
        self._decisions: OrderedDict[bytes, bool] = OrderedDict()
        self._num_spans = 0
        self._num_bytes = 0

    def take(self, arrived: Iterable[ArrivedSpan], now_s: float) -> None:
        """Add spans."""
        for each in arrived:
            kept = self._decisions.get(each.trace_id)
            if kept is False:
                continue
            if self._fill() >= _OVERFLOW:
                self.num_dropped += 1
                continue
            traces = self._kept if kept else self._undecided
            trace = traces.setdefault(each.trace_id, _Trace())
            traces.move_to_end(each.trace_id)
            trace.last_s = now_s
            # It comes last, when a large trace is full, and the decision and the summary are by it.
            decides = kept is None and each.is_root
            if len(trace.spans) >= self._limits.max_spans_of_trace and not decides:
                self.num_dropped += 1
                continue
            trace.spans.append(each)
            trace.num_bytes += each.num_bytes
            self._num_spans += 1
            self._num_bytes += each.num_bytes
            if decides:
                self._decide(each.trace_id, each.facts, now_s)

    def due(self, now_s: float) -> Iterator[Sequence[ArrivedSpan]]:
        """Remove and yield the kept traces that are probably complete by now."""
        for trace_id in self._silent(self._undecided, now_s - self._limits.patience_s):
            self._decide_without_root(trace_id, now_s)
        ready = list(self._silent(self._kept, now_s - self._limits.settle_s))
        yield from map(self._take_out, ready)
        while self._fill() > 1:
            if self._kept:
                yield self._take_out(next(iter(self._kept)))
            else:
                self._decide_without_root(next(iter(self._undecided)), now_s)

    def flush(self, now_s: float) -> Iterator[Sequence[ArrivedSpan]]:
        """Decide on all remaining traces; remove and yield those that are kept."""
        for trace_id in list(self._undecided):
            self._decide_without_root(trace_id, now_s)
        yield from map(self._take_out, list(self._kept))

    def _decide_without_root(self, trace_id: bytes, now_s: float) -> None:
        spans = self._undecided[trace_id].spans
        longest = max((span.facts for span in spans), key=lambda facts: facts.duration_ms)
        any_failed = any(span.facts.failed for span in spans)
        self._decide(trace_id, replace(longest, failed=any_failed), now_s)

    def _decide(self, trace_id: bytes, root: RootFacts, now_s: float) -> None:
        trace = self._undecided.pop(trace_id)
        kept = self._sampler.keeps(trace_id, root, now_s)
        self._decisions[trace_id] = kept
        if len(self._decisions) > self._limits.num_remembered:
            self._decisions.popitem(last=False)
        if kept:
            self._kept[trace_id] = trace
        else:
            self._forget(trace)

    def _take_out(self, trace_id: bytes) -> Sequence[ArrivedSpan]:
        trace = self._kept.pop(trace_id)
        self._forget(trace)
        return trace.spans

    def _forget(self, trace: _Trace) -> None:
        self._num_spans -= len(trace.spans)
        self._num_bytes -= trace.num_bytes

    def _fill(self) -> float:
        """Return how full the buffer is, by number or by size; 1 is at its limit."""
        limits = self._limits
        return max(self._num_spans / limits.max_spans, self._num_bytes / limits.max_bytes)

    @staticmethod
    def _silent(traces: OrderedDict[bytes, _Trace], until_s: float) -> list[bytes]:
        """Return the traces of which no span has arrived since ``until_s``."""
        silent = []
        for trace_id, trace in traces.items():
            if trace.last_s > until_s:
                break
            silent.append(trace_id)
        return silent

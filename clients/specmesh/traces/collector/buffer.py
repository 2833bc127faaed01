"""Where spans wait until their trace's root has ended and it is known which others come. Pure.

A trace is decided about when its root arrives, or when no span of it has come for
``patience_s``: then by its longest span. One that is kept leaves the buffer once no span of it
has come for ``settle_s``. Spans that come later still are handed on as well, if their trace was
kept, and dropped if it was not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from specmesh.traces.collector.arrival import ArrivedSpan
from specmesh.traces.collector.sampling import Sampler


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferLimits:
    """How long spans wait, and how many there may be."""

    settle_s: float = 2.0
    """Longer than it takes all processes to send their spans of one trace, usually."""
    patience_s: float = 30.0
    """The longest pause between two spans of a trace without a root."""
    max_spans: int = 200_000
    """In the buffer; above it the trace that has waited longest is decided about at once."""
    max_spans_of_trace: int = 50_000
    """More spans of one trace are dropped."""
    num_remembered: int = 100_000
    """Traces whose decision is known, for late spans."""


@dataclass(slots=True)
class _Trace:
    spans: list[ArrivedSpan] = field(default_factory=list)
    last_s: float = 0.0


class TraceBuffer:
    """Takes spans in and hands traces on; every ``now_s`` is of one clock that never goes back."""

    def __init__(self, sampler: Sampler, limits: BufferLimits) -> None:
        self.num_dropped = 0
        """Spans of traces that were to be kept, dropped for want of room."""
        self._sampler = sampler
        self._limits = limits
        # Both in the order in which their last span came.
        self._undecided: OrderedDict[bytes, _Trace] = OrderedDict()
        self._kept: OrderedDict[bytes, _Trace] = OrderedDict()
        self._decisions: OrderedDict[bytes, bool] = OrderedDict()
        self._num_spans = 0

    def take(self, arrived: Iterable[ArrivedSpan], now_s: float) -> None:
        """Take spans in."""
        for each in arrived:
            kept = self._decisions.get(each.trace_id)
            if kept is False:
                continue
            traces = self._kept if kept else self._undecided
            trace = traces.setdefault(each.trace_id, _Trace())
            traces.move_to_end(each.trace_id)
            trace.last_s = now_s
            if len(trace.spans) >= self._limits.max_spans_of_trace:
                self.num_dropped += 1
                continue
            trace.spans.append(each)
            self._num_spans += 1
            if kept is None and each.is_root:
                self._decide(each.trace_id, each, now_s)

    def due(self, now_s: float) -> Iterator[Sequence[ArrivedSpan]]:
        """Take out the traces that are kept and complete by now, as far as one can tell."""
        for trace_id in self._silent(self._undecided, now_s - self._limits.patience_s):
            self._decide_without_root(trace_id, now_s)
        ready = list(self._silent(self._kept, now_s - self._limits.settle_s))
        yield from map(self._take_out, ready)
        while self._num_spans > self._limits.max_spans:
            if self._kept:
                yield self._take_out(next(iter(self._kept)))
            else:
                self._decide_without_root(next(iter(self._undecided)), now_s)

    def flush(self, now_s: float) -> Iterator[Sequence[ArrivedSpan]]:
        """Decide about all that is left, and take out what is kept."""
        for trace_id in list(self._undecided):
            self._decide_without_root(trace_id, now_s)
        yield from map(self._take_out, list(self._kept))

    def _decide_without_root(self, trace_id: bytes, now_s: float) -> None:
        spans = self._undecided[trace_id].spans
        longest = max(spans, key=lambda span: span.facts.duration_ms)
        self._decide(trace_id, longest, now_s)

    def _decide(self, trace_id: bytes, root: ArrivedSpan, now_s: float) -> None:
        trace = self._undecided.pop(trace_id)
        kept = self._sampler.keeps(trace_id, root.facts, now_s)
        self._decisions[trace_id] = kept
        if len(self._decisions) > self._limits.num_remembered:
            self._decisions.popitem(last=False)
        if kept:
            self._kept[trace_id] = trace
        else:
            self._num_spans -= len(trace.spans)

    def _take_out(self, trace_id: bytes) -> Sequence[ArrivedSpan]:
        spans = self._kept.pop(trace_id).spans
        self._num_spans -= len(spans)
        return spans

    @staticmethod
    def _silent(traces: OrderedDict[bytes, _Trace], until_s: float) -> list[bytes]:
        """Those of which no span has come since."""
        silent = []
        for trace_id, trace in traces.items():
            if trace.last_s > until_s:
                break
            silent.append(trace_id)
        return silent

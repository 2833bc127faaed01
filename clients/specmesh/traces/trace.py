"""One trace, prepared for analysis: on one clock, in one tree, with its gaps known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specmesh.traces.analysis.breakdown import Breakdown, breakdown
from specmesh.traces.analysis.clocks import ClockCorrection, corrected
from specmesh.traces.analysis.completeness import Gap, MissingSpan, gaps, mended
from specmesh.traces.analysis.critical_path import Segment, critical_path
from specmesh.traces.analysis.path_parts import Stretch, stretches
from specmesh.traces.analysis.token_numbers import numbered_apart
from specmesh.traces.analysis.verdicts import answering, ended_with_the_first
from specmesh.traces.spans import Span, root_of, without_cycles
from specmesh.traces.summary import TraceSummary, summarise


@dataclass(frozen=True, slots=True)
class Trace:
    """The spans of one trace on its root's clock, with a placeholder for each lost parent."""

    spans: Sequence[Span]
    root: Span
    gaps: Sequence[Gap]
    corrections: Sequence[ClockCorrection]
    summary: TraceSummary
    path: Sequence[Stretch]
    """The critical path, from the root's start to its end."""
    segments: Sequence[Segment]
    """The critical path before its division into activities, from its end to its start."""

    @classmethod
    def of(cls, spans: Sequence[Span]) -> Trace:
        """Make the trace of ``spans`` as recorded, at least one."""
        by_one_clock, corrections = corrected(ended_with_the_first(without_cycles(spans)))
        by_one_clock = answering(by_one_clock)
        found = gaps(by_one_clock)
        whole = numbered_apart(mended(by_one_clock, found))
        root = root_of(by_one_clock)
        segments = critical_path(root, whole)
        path = stretches(segments, whole)
        return cls(whole, root, found, corrections, summarise(spans), path, segments)

    def children(self) -> Mapping[str, Sequence[Span]]:
        """Return the children of each span, by its id, in order of start. The root's own parent has
        no entry, even if its id is known."""
        below: dict[str, list[Span]] = defaultdict(list)
        for span in sorted(self.spans, key=lambda span: span.start_ns):
            if span is not self.root:
                below[span.parent_span_id].append(span)
        for gap in self.gaps:
            if gap.loss is MissingSpan.ROOT:
                # The root may have siblings, which have the same missing parent.
                below[self.root.span_id] += [each for each in gap.above if each is not self.root]
        return below

    def breakdown(self) -> Breakdown:
        """Compute the time of each node."""
        return breakdown(self.spans, self.segments)

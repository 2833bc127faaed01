"""One span per round, which lasts from one commit to the next, whatever the strategy does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span

from specmesh.orchestrator.replicas.calls.traced_tokens import TracedTokens
from specmesh.orchestrator.strategies.commands import Commit
from specmesh.serving import conventions as names
from specmesh.serving.telemetry.pipeline import is_recorded, tracer


class Rounds:
    """Spans of one request's rounds, at most one open, children of the span current at creation.

    ``tokens`` numbers the committed tokens; it is None if nothing is recorded.
    """

    def __init__(self, tokens: TracedTokens | None) -> None:
        self._tokens = tokens
        self._parent = context.get_current()
        self._is_recorded = is_recorded(self._parent)
        self._number = 0
        self._open: Span | None = None

    @property
    def context(self) -> Context:
        """Parent of the current round's calls; starts the round's span if there is none."""
        if not self._is_recorded:
            return self._parent
        return trace.set_span_in_context(self._current(), self._parent)

    @contextmanager
    def cancelling(self, num_tasks: int) -> Iterator[None]:
        """Record a span from the decision to cancel calls until all have ended here."""
        if not self._is_recorded:
            yield
            return
        attributes = {names.CANCELLED_TASKS: num_tasks}
        with tracer.start_as_current_span(
            names.CANCEL_SPAN, context=self.context, attributes=attributes
        ):
            yield

    def committed(self, commit: Commit) -> None:
        """End the round, with its numbers of accepted and committed tokens."""
        if not self._is_recorded:
            return
        span = self._current()  # opens a round without calls if two commits follow each other
        if self._tokens is not None:
            span.set_attributes(self._tokens.committed(commit))
        span.set_attribute(names.ACCEPTED, commit.num_accepted)
        span.set_attribute(names.COMMITTED, len(commit.token_ids))
        if not commit.checked:
            span.set_attribute(names.UNCHECKED, len(commit.token_ids))
        self.close()

    def close(self) -> None:
        """End the current round, if there is one."""
        if self._open is not None:
            self._open.end()
            self._open = None

    def _current(self) -> Span:
        """Return the span of the current round, starting it if needed."""
        if self._open is None:
            self._number += 1
            attributes = {names.ROUND: self._number}
            self._open = tracer.start_span(
                names.ROUND_SPAN, context=self._parent, attributes=attributes
            )
        return self._open

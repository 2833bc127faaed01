"""The contents of one request's trace that a simulation needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Strategy
from specmesh.orchestrator.strategies.options import OPTIONS, StrategyOptions
from specmesh.serving import conventions as names
from specmesh.simulation.replay.node_calls import NodeCalls
from specmesh.traces.analysis.speculation import num_levels
from specmesh.traces.intervals import length_ms, union
from specmesh.traces.spans import Node, Span, SpanKind, servers_of
from specmesh.traces.trace import Trace


class NotReplayable(ValueError):
    """The trace lacks information; the message says which."""


@dataclass(frozen=True, slots=True)
class RecordedGuess:
    """The success of a draft at one position: whether the first choice of a drafter, or of heads,
    was the answer's token, and whether another one was."""

    first: bool
    other: bool


@dataclass(frozen=True, slots=True)
class Forward:
    """One verification at its replica: its time, and its number of nodes, root included. ``first``
    says that the replica had nothing of the request before."""

    num_nodes: int
    seconds: float
    first: bool


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One request; all times in seconds."""

    strategy: str
    options: StrategyOptions
    num_tokens: int
    guesses: Mapping[int, RecordedGuess]
    """Guesses by the number of preceding tokens, only where a draft continued the answer."""
    verifications: tuple[Forward, ...]
    drafter_level_s: tuple[float, ...]
    """Time of one level, for each draft."""
    heads_level_s: tuple[float, ...] = field(default=(), kw_only=True)
    """The same for the target's heads, if they draft instead of a drafter."""
    heads_depth: int = field(default=0, kw_only=True)
    """Maximum number of levels that they drafted."""
    hop_s: float
    """One-way time between orchestrator and replicas, both sides' event loops included."""
    num_verifiers: int
    speculation_s: float
    """Time from the strategy's first command to the last commit."""
    outside_s: float
    """The rest of the answer's time: admission, reading the prompt, the client's network."""

    @property
    def duration_s(self) -> float:
        """Return the time of the whole answer."""
        return self.speculation_s + self.outside_s


def recorded(trace: Trace) -> RecordedRequest:
    """Read a request from its trace. Raises ``NotReplayable``."""
    if trace.gaps:
        raise NotReplayable("spans are missing")
    return _Reader(trace).result()


class _Reader:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._spans = sorted(trace.spans, key=lambda span: span.start_ns)
        self._servers = servers_of(trace.spans)
        answers = [span for span in self._spans if names.STRATEGY in span.attributes]
        answers = [span for span in answers if span.kind is SpanKind.SERVER]
        if len(answers) != 1:
            raise NotReplayable("the trace must hold the whole answer of one orchestrator")
        self._answer = answers[0]
        calls: dict[Node, list[Span]] = defaultdict(list)
        for span in self._spans:
            if span.kind is SpanKind.SERVER:
                calls[span.node].append(span)
        self._calls = {node: NodeCalls(served) for node, served in calls.items()}

    def _known(self) -> type[Strategy]:
        """Return the strategy of the answer, of which the trace must tell enough."""
        strategy = self._answer.text(names.STRATEGY)
        known = STRATEGIES.get(strategy)
        if known is None or not known.lossless:
            raise NotReplayable(f"strategy {strategy!r} can't be simulated")
        if strategy == "auto":
            raise NotReplayable(
                "traces lack what 'auto' knew of the mesh; answers of other strategies can be "
                "simulated"
            )
        if known.needs_heads and known.asks_drafter:
            raise NotReplayable(
                f"strategy {strategy!r} merges drafts: traces lack the tokens that heads guessed"
            )
        return known

    def result(self) -> RecordedRequest:
        """Read the request. What was never drafted is simulated as the target alone."""
        known = self._known()
        rounds = [span for span in self._spans if span.numbers(names.COMMITTED_NODES)]
        if not rounds:
            raise NotReplayable("no tokens are recorded")
        committed = [node for span in rounds for node in span.numbers(names.COMMITTED_NODES)]
        began_ns = min(span.start_ns for span in self._spans if span.name == names.ROUND_SPAN)
        speculation_s = (max(span.end_ns for span in rounds) - began_ns) / 1e9
        verifications, levels_s = tuple(self._verifications(known)), self._levels()
        heads_levels_s = tuple(self._heads_levels()) if known.needs_heads else ()
        if not verifications:
            raise NotReplayable("no verification tells how long a forward took")
        has_drafts = any(map(num_levels, self._trees(known)))
        lacks = known.needs_heads and not heads_levels_s
        if has_drafts and (lacks or (known.needs_drafter and not levels_s)):
            raise NotReplayable("no draft tells how long a level took")
        if speculation_s <= 0 or self._trace.root.duration_ms <= 0:
            raise NotReplayable("the answer took no time")
        return RecordedRequest(
            strategy=self._answer.text(names.STRATEGY) if has_drafts else "autoregressive",
            options=self._options() if has_drafts else StrategyOptions(),
            num_tokens=len(committed),
            guesses=self._guesses(committed, known),
            verifications=verifications,
            drafter_level_s=levels_s,
            heads_level_s=heads_levels_s,
            heads_depth=max(map(num_levels, self._trees(known))) if heads_levels_s else 0,
            hop_s=self._hop_s(),
            num_verifiers=self._num_verifiers(),
            speculation_s=speculation_s,
            outside_s=self._trace.root.duration_ms / 1e3 - speculation_s,
        )

    def _options(self) -> StrategyOptions:
        attributes = self._answer.attributes
        given: dict[str, Any] = {name: attributes.get(names.option(name)) for name in OPTIONS}
        given = {name: value for name, value in given.items() if value}
        for name, value in given.items():  # The trace may come from another program.
            try:
                refused = OPTIONS[name].refusal(value)
            except TypeError:
                refused = "of another type"
            if refused:
                raise NotReplayable(f"{name} {value!r} can't be simulated")
        return StrategyOptions(**given)

    def _trees(self, known: type[Strategy]) -> list[Span]:
        """Return the spans that each record a draft: verifications of whole drafts for heads,
        otherwise drafts."""
        name = names.VERIFY_SPAN if known.needs_heads else names.DRAFT_SPAN
        return [span for span in self._spans if span.name == name]

    def _guesses(
        self, committed: Sequence[int], known: type[Strategy]
    ) -> Mapping[int, RecordedGuess]:
        children: dict[int, list[int]] = {}
        for span in self._trees(known):
            nodes = span.numbers(names.TREE_NODES)
            for node, parent in zip(nodes, span.numbers(names.TREE_PARENTS), strict=False):
                children.setdefault(parent, []).append(node)
        return {
            position: RecordedGuess(children[before][0] == node, node in children[before][1:])
            for position, (before, node) in enumerate(pairwise((0, *committed)))
            if before in children
        }

    def _answered(self, name: str) -> Iterator[tuple[Span, Span]]:
        """Yield calls that ran to their end, with their servers' spans."""
        for call in self._spans:
            if call.name == name and not (call.was_cancelled or call.is_error):
                for server in self._servers.get(call.span_id, ()):
                    yield call, server

    def _verifications(self, known: type[Strategy]) -> Iterator[Forward]:
        seen: set[Node] = set()
        for call, server in self._answered(names.VERIFY_SPAN):
            seconds = server.duration_ms / 1e3 - self._own_queue_s(server)
            if known.needs_heads:
                seconds -= call.number(names.HEADS_MS) / 1e3
            num_nodes = len(call.numbers(names.TREE_NODES)) + 1
            if seconds > 0:  # Otherwise the trace's times contradict each other.
                yield Forward(num_nodes, seconds, first=server.node not in seen)
            seen.add(server.node)

    def _own_queue_s(self, server: Span) -> float:
        """Return how long the call waited for other calls of this request."""
        waited = (server.start_ns, server.left_queue_ns)
        others = self._calls[server.node].within(waited, but=server)
        return length_ms(union(others)) / 1e3

    def _levels(self) -> tuple[float, ...]:
        """Return the time of a level of each draft that ran to its end; if none did, of each that
        was cancelled, which is half through the next level on average."""
        ended: list[float] = []
        cancelled: list[float] = []
        for call in self._spans:
            if call.name != names.DRAFT_SPAN:
                continue
            drafted = num_levels(call)
            for server in self._servers.get(call.span_id, ()):
                seconds = server.duration_ms / 1e3 - self._own_queue_s(server)
                if not drafted or seconds <= 0:
                    continue
                if call.was_cancelled:
                    cancelled.append(seconds / (drafted + 0.5))
                elif not call.is_error:
                    ended.append(seconds / drafted)
        return tuple(ended or cancelled)

    def _heads_levels(self) -> Iterator[float]:
        """Yield the time per level of heads: the draft of a verdict is what the next verification
        covers."""
        calls = [call for call, _ in self._answered(names.VERIFY_SPAN)]
        for call, following in pairwise(calls):
            drafted, heads_ms = num_levels(following), call.number(names.HEADS_MS)
            if drafted and heads_ms:
                yield heads_ms / 1e3 / drafted

    def _hop_s(self) -> float:
        both = [
            call.duration_ms - server.duration_ms
            for call, server in self._answered(names.VERIFY_SPAN)
            if not call.text(names.FURTHER_OF)  # which was never sent
        ]
        return max(median(both), 0.0) / 2e3

    def _num_verifiers(self) -> int:
        known = int(self._answer.number(names.NUM_VERIFIERS))
        return known or len({server.node for _, server in self._answered(names.VERIFY_SPAN)})

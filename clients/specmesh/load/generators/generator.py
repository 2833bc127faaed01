"""The generator: it sends a workload, or its part of one, and measures latencies.

In an open loop no request waits for another: each begins when it is due, although earlier ones have
not ended. All latencies count from when a request was due, so that neither a slow server nor a slow
generator can hide requests that it delayed (coordinated omission).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from specmesh.load.results.histograms import Histogram
from specmesh.load.transports.observation import Observation, RequestOutcome
from specmesh.load.transports.tracing import traced
from specmesh.load.transports.transport import LoadRequest, RequestFailed, Told, Transport
from specmesh.load.workload.arrivals import Users, pause_after
from specmesh.load.workload.conversations import Conversation
from specmesh.load.workload.draws import drawn_for
from specmesh.load.workload.plan import RequestDraw, RunPhase, Workload

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Chunks:
    """Statistics of the chunks of measured requests, also of cancelled and failed ones."""

    gaps: Histogram = field(default_factory=Histogram)
    """Time from one chunk of a request to the next."""
    token_gaps: Histogram = field(default_factory=Histogram)
    """The same, divided by the number of tokens of the later chunk; empty if the server does not
    count tokens."""
    sizes: Counter[int] = field(default_factory=Counter)
    """Number of chunks by their number of tokens; empty if the server does not count tokens."""


@dataclass(frozen=True, slots=True)
class WorkloadPart:
    """The share of generator ``number`` of ``count``; if ``traced``, it starts traces."""

    number: int
    count: int
    traced: bool


class Generator:
    """A generator, which runs once. ``observed`` is called with each request that has ended;
    ``now`` returns the seconds since the start."""

    def __init__(
        self,
        workload: Workload,
        part: WorkloadPart,
        transport: Transport,
        observed: Callable[[Observation], None],
        now: Callable[[], float],
    ) -> None:
        self._workload = workload
        self._part = part
        self._transport = transport
        self._observed = observed
        self._now = now
        self.chunks = Chunks()
        self.num_under_way = 0
        self._known: set[type[Exception]] = set()

    async def run(self) -> None:
        """Send everything, and return when all requests have ended. Cancelling it cancels the
        requests under way."""
        async with asyncio.TaskGroup() as group:
            if isinstance(self._workload.arrivals, Users):
                for user in range(
                    self._part.number, self._workload.arrivals.count, self._part.count
                ):
                    group.create_task(self._use(user, self._workload.arrivals))
            else:
                await self._send_when_due(group)

    async def ask_again(self, number: int) -> None:
        """Hold a conversation of the workload once more, at once; its requests are the same."""
        await self._converse(number, self._now())

    async def _send_when_due(self, group: asyncio.TaskGroup) -> None:
        for number, at_s in self._workload.beginnings(self._part.number, self._part.count):
            await self._until(at_s)
            group.create_task(self._converse(number, at_s))

    async def _use(self, user: int, users: Users) -> None:
        """Hold the conversations of one user, numbered so that no two users share one."""
        extent = self._workload.extent
        rng = drawn_for(self._workload.seed, "user", user)
        num_failures, pause_s = 0, 0.0
        for number in itertools.count(user, users.count):
            begins_s = max(0.0, self._now()) + users.think(rng) + pause_s
            if extent.total_s is not None and begins_s >= extent.total_s:
                return
            if extent.max_conversations is not None and number >= extent.max_conversations:
                return
            await self._until(begins_s)
            last = await self._converse(number, begins_s, users)
            num_failures = num_failures + 1 if last.outcome is RequestOutcome.FAILED else 0
            pause_s = last.retry_after_s or pause_after(num_failures)

    async def _until(self, at_s: float) -> None:
        wait_s = at_s - self._now()
        # A late one begins immediately, but still yields to the event loop.
        await asyncio.sleep(max(0.0, wait_s))

    async def _converse(self, number: int, due_s: float, users: Users | None = None) -> Observation:
        """Send all turns of a conversation; it ends with the first that fails or is cancelled.
        Return the last one."""
        conversation = self._workload.conversation(number)
        rng = drawn_for(self._workload.seed, "think", number)
        think = users or Users(1, self._workload.think_s)
        said: list[str] = []
        for turn in range(len(conversation.turns)):
            if turn:
                due_s = self._now() + think.think(rng)
                await self._until(due_s)
            said.append(conversation.turns[turn].text)
            fate = self._fate(number, turn, conversation)
            seen = Observation(
                number, turn, fate.variation, due_s, self._now(), part=self._part.number
            )
            self.num_under_way += 1
            try:
                answer = await self._ask(conversation.system, tuple(said), fate, seen)
            finally:
                self.num_under_way -= 1
            self._observed(seen)
            if seen.outcome is not RequestOutcome.ANSWERED:
                break
            said.append(answer)
        return seen

    def _fate(self, number: int, turn: int, conversation: Conversation) -> RequestDraw:
        return self._workload.fate(number, turn, conversation.turns[turn].num_output_tokens)

    async def _ask(
        self, system: tuple[str, ...], said: tuple[str, ...], fate: RequestDraw, seen: Observation
    ) -> str:
        """Send a request, record its outcome in ``seen``, and return the answer."""
        workload = self._workload
        call = LoadRequest(
            said=said,
            system=system,
            variation=workload.variations[fate.variation],
            max_tokens=fate.max_tokens,
            ignore_end=workload.ignore_end,
            sampling_seed=fate.sampling_seed,
            timeout_s=max(0.001, workload.timeout_s - (seen.sent_s - seen.due_s)),
        )
        chunks = self.chunks if self._is_measured(seen.due_s) else Chunks()
        reading = _Reading(seen, fate.cancel_after, self._now, chunks)
        try:
            if self._part.traced:
                with traced() as seen.trace_id:
                    told = await self._transport.ask(call, reading.heard)
            else:
                told = await self._transport.ask(call, reading.heard)
        except RequestFailed as failure:
            seen.reason, seen.retry_after_s = failure.reason, failure.retry_after_s
        except Exception as error:
            # An unexpected answer must fail its own request only, never the run.
            seen.reason = type(error).__name__
            self._complain(error)
        else:
            seen.outcome = RequestOutcome.CANCELLED if told is None else RequestOutcome.ANSWERED
            if told is not None:
                _keep(told, seen)
        seen.ended_s = self._now()
        answer = "".join(reading.texts)
        if seen.outcome is RequestOutcome.ANSWERED:
            seen.text_digest = digest_of(answer)
        return answer

    def _complain(self, error: Exception) -> None:
        """Log an unexpected error, once for each type."""
        if type(error) not in self._known:
            self._known.add(type(error))
            log.error("a request failed in the generator itself", exc_info=error)

    def _is_measured(self, due_s: float) -> bool:
        return self._workload.extent.phase(due_s) is RunPhase.MEASURED


class _Reading:
    """Records the chunks of one answer."""

    def __init__(
        self,
        seen: Observation,
        cancel_after: int | None,
        now: Callable[[], float],
        chunks: Chunks,
    ) -> None:
        self.texts: list[str] = []
        self._seen = seen
        self._cancel_after = cancel_after
        self._now = now
        self._chunks = chunks

    def heard(self, num_tokens: int | None, text: str) -> bool:
        """Record a chunk, and return whether to go on."""
        self.texts.append(text)
        if num_tokens == 0:  # text that the server held back until the end
            return True
        now_s, seen = self._now(), self._seen
        if seen.last_s is None:
            seen.first_s = now_s
        else:
            gap_s = now_s - seen.last_s
            self._chunks.gaps.record(gap_s)
            if num_tokens is not None:
                self._chunks.token_gaps.record(gap_s / num_tokens, num_tokens)
        seen.last_s = now_s
        seen.num_chunks += 1
        seen.num_output_tokens += 1 if num_tokens is None else num_tokens
        if num_tokens is not None:
            self._chunks.sizes[num_tokens] += 1
        return self._cancel_after is None or seen.num_output_tokens < self._cancel_after


def digest_of(text: str) -> str:
    """Return the digest of ``Observation.text_digest``."""
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _keep(told: Told, seen: Observation) -> None:
    seen.num_prompt_tokens = told.num_prompt_tokens
    seen.num_resumes = told.num_resumes
    seen.work = told.work
    if told.num_output_tokens is not None:
        seen.num_output_tokens = told.num_output_tokens
        seen.is_counted = True


def monotonic_since(epoch_s: float) -> Callable[[], float]:
    """Return a clock of the seconds since ``epoch_s`` of the monotonic clock. All processes of a
    machine share the monotonic clock."""
    return lambda: time.monotonic() - epoch_s

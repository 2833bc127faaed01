"""The streams, in generator processes: each reads its answers as fast as the mesh gives them."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from specmesh.load.generators.event_loop import precise_loop
from specmesh.load.generators.generator import Chunks, Generator, WorkloadPart, monotonic_since
from specmesh.load.results.histograms import Histogram
from specmesh.load.transports.observation import Observation, RequestOutcome
from specmesh.load.transports.transport import ServerAddress
from specmesh.load.workload.arrivals import Users
from specmesh.load.workload.conversations import Synthetic
from specmesh.load.workload.lengths import ConstantLength
from specmesh.load.workload.plan import RunLength, Workload
from specmesh.load.workload.variations import Variation

LOOKAHEAD = 4
"""Draft tokens per verification: where no forward takes time, strategies would adapt to noise."""
PROMPT_TOKENS = 32
_TIMEOUT_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLoad:
    """A number of concurrent streams, each of which asks for ``answers`` of ``tokens`` tokens, one
    after the other."""

    strategy: str
    streams: int
    answers: int
    tokens: int

    @property
    def num_tokens(self) -> int:
        """Return the tokens of all answers."""
        return self.streams * self.answers * self.tokens

    def workload(self) -> Workload:
        """Return the load as the load generator takes it."""
        return Workload(
            arrivals=Users(self.streams),
            conversations=Synthetic(prompt_tokens=ConstantLength(PROMPT_TOKENS)),
            extent=RunLength(max_conversations=self.streams * self.answers),
            variations=(
                Variation(
                    strategy=self.strategy,
                    options={"lookahead": LOOKAHEAD},
                    sampling={"temperature": 0.0},
                ),
            ),
            output_tokens=ConstantLength(self.tokens),
            ignore_end=True,
            timeout_s=_TIMEOUT_S,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsSeen:
    """The answers that one generator process has read. Times are by the monotonic clock."""

    tokens: int
    chunks: int
    failures: Counter[str]
    """Answers that failed or were too short, by reason."""
    gaps: Histogram
    """Time from one chunk of an answer to the next."""
    intervals: Sequence[tuple[float, float]]
    """The times of each answer's first and last chunk."""
    began_s: float
    ended_s: float


def read_streams(load: StreamLoad, door: ServerAddress, part: int, parts: int) -> StreamsSeen:
    """Read the share ``part`` of ``parts`` of all streams, in this process."""
    # Imported modules never become garbage; without them collections are shorter.
    gc.collect()
    gc.freeze()
    now = monotonic_since(0.0)
    began_s = now()
    seen: list[Observation] = []
    with asyncio.Runner(loop_factory=precise_loop) as runner:
        chunks = runner.run(_read(load, door, WorkloadPart(part, parts, traced=False), seen))
    return StreamsSeen(
        tokens=sum(each.num_output_tokens for each in seen),
        chunks=sum(each.num_chunks for each in seen),
        failures=Counter(failure for each in seen if (failure := failure_of(each, load.tokens))),
        gaps=chunks.gaps,
        intervals=[
            (each.first_s, each.last_s)
            for each in seen
            if each.first_s is not None and each.last_s is not None
        ],
        began_s=began_s,
        ended_s=max((each.ended_s for each in seen), default=began_s),
    )


async def _read(
    load: StreamLoad, door: ServerAddress, part: WorkloadPart, seen: list[Observation]
) -> Chunks:
    async with door.open() as transport:
        now = monotonic_since(0.0)
        generator = Generator(load.workload(), part, transport, seen.append, now)
        await generator.run()
    return generator.chunks


def failure_of(seen: Observation, tokens: int) -> str:
    """Return why an answer is not one of ``tokens`` tokens; empty if it is."""
    if seen.outcome is not RequestOutcome.ANSWERED:
        return seen.reason or seen.outcome
    return "" if seen.num_output_tokens == tokens else "SHORT"

"""One stream, as its reader sees it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from specmesh.client import AsyncClient, SpecmeshError
from specmesh.decoding.simulated.hashed import SimulatedTarget

_ENDLESS_TOKENS = 100_000


@dataclass(slots=True)
class RequestSeen:
    """One request so far. Times are those of ``time.monotonic``."""

    prompt: tuple[int, ...]
    session_id: str = ""
    had_ids: set[str] = field(default_factory=set)
    """All session ids so far: an answer that continues without the store gets a new one."""
    token_ids: list[int] = field(default_factory=list)
    chunks: list[tuple[float, bool]] = field(default_factory=list)
    """Arrival time of each chunk, and whether everything up to it was stored."""
    num_stored: int = 0
    """Number of stored tokens, as far as the reader was told."""
    failure: str = ""
    """Class and reason of the error that ended it, empty if none did."""

    @property
    def is_stored(self) -> bool:
        """Return whether all tokens so far are in the store."""
        return bool(self.chunks) and self.chunks[-1][1]

    @property
    def not_stored_s(self) -> float:
        """Return the total time for which the reader was told that not everything is stored. Each
        such time lasts from the first chunk that says so to the next that does not."""
        return sum(end - begin for begin, end in self._not_stored())

    @property
    def longest_pause_s(self) -> float:
        """Return the longest wait for a chunk, after the first."""
        times = [when for when, _ in self.chunks]
        return max((after - before for before, after in pairwise(times)), default=0.0)

    def _not_stored(self) -> Iterator[tuple[float, float]]:
        began: float | None = None
        for when, is_stored in self.chunks:
            if not is_stored and began is None:
                began = when
            elif is_stored and began is not None:
                yield began, when
                began = None
        if began is not None:
            yield began, self.chunks[-1][0]


async def read(client: AsyncClient, seen: RequestSeen, changed: asyncio.Event) -> None:
    """Request a practically endless answer, and read until cancelled or failed; ``changed`` is set
    with each chunk."""
    stream = client.generate(
        seen.prompt, strategy="autoregressive", temperature=0.0, max_tokens=_ENDLESS_TOKENS
    )
    try:
        async for chunk in stream:
            seen.token_ids += chunk.token_ids
            seen.session_id = stream.session_id
            seen.had_ids.add(stream.session_id)
            seen.chunks.append((time.monotonic(), chunk.resumable))
            if chunk.resumable:
                seen.num_stored = len(seen.token_ids)
            changed.set()
    except SpecmeshError as error:
        seen.failure = f"{type(error).__name__} {error.reason or error.code.name}"
    finally:
        changed.set()


def right_answer(
    target: SimulatedTarget, prompt: Sequence[int], num_tokens: int
) -> tuple[int, ...]:
    """Return what the target greedily says after ``prompt``."""
    state = target.after(target.start, prompt)
    said = []
    for _ in range(num_tokens):
        said.append(target.token(state))
        state = target.after(state, (said[-1],))
    return tuple(said)

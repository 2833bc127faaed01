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
    """What came of one request so far. Times are those of ``time.monotonic``."""

    prompt: tuple[int, ...]
    session_id: str = ""
    had_ids: set[str] = field(default_factory=set)
    """That, and those before: an answer that goes on without the store gets another one."""
    token_ids: list[int] = field(default_factory=list)
    chunks: list[tuple[float, bool]] = field(default_factory=list)
    """When each came, and whether everything up to it was stored."""
    num_stored: int = 0
    """How many tokens were stored, as far as its reader was told."""
    failure: str = ""
    """Class and reason of the error that ended it, if one did."""

    @property
    def is_stored(self) -> bool:
        """Whether everything said so far is in the store."""
        return bool(self.chunks) and self.chunks[-1][1]

    @property
    def not_stored_s(self) -> float:
        """For how long the reader was told that not all is stored: from the first chunk that said
        so to the next that did not, over all such times."""
        return sum(end - begin for begin, end in self._not_stored())

    @property
    def longest_pause_s(self) -> float:
        """The longest wait for a chunk, after the first."""
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
    """Ask for an answer that is longer than anybody waits for, and read until cancelled or
    failed; ``changed`` is set with each chunk."""
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
    """What the target says after ``prompt``, greedily."""
    state = target.after(target.start, prompt)
    said = []
    for _ in range(num_tokens):
        said.append(target.token(state))
        state = target.after(state, (said[-1],))
    return tuple(said)

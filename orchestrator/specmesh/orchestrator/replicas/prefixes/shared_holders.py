"""Knowledge of prefix holders that the orchestrators of a mesh share through Redis.

It saves an occasional prefill, so nothing waits for it longer than that is worth: a search runs
while the answer's session is being stored and then gets a few milliseconds at most, and notes are
written in the background.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from specmesh.decoding.prefix import PrefixChain
from specmesh.orchestrator.replicas.prefixes.landmarks import worth_looking_up
from specmesh.serving.conventions import SEARCH_OUTCOME
from specmesh.serving.metrics import PREFIX_SEARCHES
from specmesh.serving.store.prefix_directory import Beginnings, PrefixDirectory
from specmesh.serving.store.stored_session import StoreUnavailable

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 0.005
"""The longest that a search delays an answer."""
MAX_DUE = 256
"""Most notes that wait for Redis; beyond that the oldest are dropped."""

MOST_AT_ONCE = 16
"""Most notes of a round trip: sessions on the same server wait for them."""

_searches = PREFIX_SEARCHES.instrument()


class Search:
    """One search that has been sent."""

    def __init__(self, shared: SharedHolders, task: asyncio.Task[dict[str, int] | None]) -> None:
        self._shared = shared
        self._task = task

    async def result(self) -> dict[str, int]:
        """Return how many tokens each replica holds; empty if the directory does not answer in
        time."""
        patience_s = PATIENCE_SECONDS if self._shared.is_prompt else 0.0
        await asyncio.wait({self._task}, timeout=patience_s)
        found = self._task.result() if self._task.done() else None
        self._shared.is_prompt = found is not None
        _count("unanswered" if found is None else "found" if found else "unknown")
        return found or {}


class SharedHolders:
    """Queries and updates the directory. Neither ever raises, and only ``Search.result`` waits."""

    def __init__(self, directory: PrefixDirectory) -> None:
        self._directory = directory
        self.is_prompt = True
        """True if the latest search was answered in time; if not, nothing waits for the next."""
        self._searches: set[asyncio.Task[dict[str, int] | None]] = set()
        self._due: OrderedDict[Beginnings, dict[str, int]] = OrderedDict()
        self._writing: asyncio.Task[None] | None = None
        self._has_broken = False

    def search(self, chain: PrefixChain) -> Search | None:
        """Ask who holds the longest beginning of ``chain``.

        While the directory is slow or unreachable, one search at a time still asks, to notice when
        that is over, but no answer waits for it; all other searches return None.
        """
        lengths = worth_looking_up(len(chain))
        if not lengths:
            return None
        if self._searches and not self.is_prompt:
            _count("unanswered")
            return None
        find = self._find(_beginnings(chain, lengths), lengths)
        task = asyncio.get_running_loop().create_task(find)
        self._searches.add(task)
        task.add_done_callback(self._searches.discard)
        return Search(self, task)

    def note(self, chain: PrefixChain, lengths: Sequence[int], holds: Mapping[str, int]) -> None:
        """Publish the holders of the beginnings of ``chain`` in the background; the arguments are
        those of ``PrefixHolders.remember``."""
        leading = {
            replica: sum(length <= held for length in lengths) for replica, held in holds.items()
        }
        leading = {replica: number for replica, number in leading.items() if number}
        if not leading:
            return
        self._due.setdefault(_beginnings(chain, lengths), {}).update(leading)
        if len(self._due) > MAX_DUE:
            self._due.popitem(last=False)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def aclose(self) -> None:
        """Write the pending notes, if Redis answers, and close the connections."""
        running = [*self._searches, *((self._writing,) if self._writing else ())]
        await asyncio.gather(*running, return_exceptions=True)
        await self._directory.aclose()

    async def _find(self, beginnings: Beginnings, lengths: Sequence[int]) -> dict[str, int] | None:
        """Return how many tokens each replica holds; None if the directory is unreachable."""
        now = asyncio.get_running_loop().time
        began = now()
        try:
            found = await self._directory.find(beginnings)
        except StoreUnavailable as error:
            log.debug("prefix directory away", extra={"reason": str(error)})
            self.is_prompt = False
            return None
        except Exception as error:
            self._broke(error)
            return None
        self.is_prompt = self.is_prompt or now() - began <= PATIENCE_SECONDS
        return {replica: lengths[number - 1] for replica, number in found.items()}

    async def _write(self) -> None:
        """Write the pending notes, up to ``MOST_AT_ONCE`` in a round trip."""
        while self._due:
            number = min(len(self._due), MOST_AT_ONCE)
            oldest = [self._due.popitem(last=False) for _ in range(number)]
            writes = (self._directory.note(*note) for note in oldest)
            errors = filter(None, await asyncio.gather(*writes, return_exceptions=True))
            for error in errors:
                if isinstance(error, StoreUnavailable):
                    self._due.clear()
                    log.debug("prefix directory away", extra={"reason": str(error)})
                else:
                    self._broke(error)

    def _broke(self, error: BaseException) -> None:
        """Log ``error``, the first time as an error: it is a bug of ours, but a mere hint must not
        fail any answer."""
        level = logging.DEBUG if self._has_broken else logging.ERROR
        log.log(level, "prefix directory broken", exc_info=error)
        self._has_broken = True


def _count(outcome: str) -> None:
    _searches.add(1, {SEARCH_OUTCOME: outcome})


def _beginnings(chain: PrefixChain, lengths: Sequence[int]) -> Beginnings:
    return Beginnings(chain.digests[0], tuple(map(chain.digest_at, lengths)))

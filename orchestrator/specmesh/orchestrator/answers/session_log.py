"""Stores one answer as it grows, so that another orchestrator can continue it.

Tokens are stored before the client sees them, as long as the store keeps up. A store that is slow
or unreachable delays them no longer than ``StorePatience`` allows: then they are sent unstored, the
client is told so, and the log retries until the store has everything again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from random import Random

from specmesh.orchestrator.strategies.commands import StopReason
from specmesh.serving.conventions import COMMIT_SPAN
from specmesh.serving.eager import EagerWork
from specmesh.serving.errors import AbortedStatus
from specmesh.serving.metrics import NOT_RESUMABLE
from specmesh.serving.store.patience import SHORTEST_S
from specmesh.serving.store.session_store import SessionStore
from specmesh.serving.store.stored_session import (
    Claim,
    Generated,
    SessionNotFound,
    SessionStart,
    StaleEpoch,
    StoreConflict,
    StoredSessionCancelled,
    StoreUnavailable,
    Writer,
)
from specmesh.serving.telemetry.pipeline import is_recorded, tracer

log = logging.getLogger(__name__)

FIRST_BACKOFF_S = 0.05
LONGEST_BACKOFF_S = 1.0
"""Longest pause before a failed write is retried; its tokens stay in memory meanwhile."""

_not_resumable = NOT_RESUMABLE.instrument()


class SessionLog:
    """Writes one session to the store, one write at a time, in order.

    ``generated`` are the tokens before those appended; ``is_stored`` says that the store has them.
    Without a store nothing is written. ``rng`` draws the jitter of retries.
    """

    def __init__(
        self,
        store: SessionStore | None,
        session: SessionStart,
        writer: Writer,
        generated: Generated,
        rng: Random,
        *,
        is_stored: bool,
    ) -> None:
        self.session = session
        self.epoch = writer.epoch
        self._store = store
        self._writer = writer
        self._dice = rng
        self._token_ids = list(generated.token_ids)
        self._is_unchecked = bytearray(
            n in generated.unchecked for n in range(len(self._token_ids))
        )
        # None means that the store lacks the session, as far as is known.
        self._num_stored = len(self._token_ids) if is_stored else None
        self._is_certain = True
        """False while another answer may have the session, by which this one is not to end."""
        self._touch_is_due = False
        self._finished: StopReason | None = None
        self._stored_finished: StopReason | None = None
        self._catching_up: asyncio.Task[None] | None = None
        self._has_lagged = False
        self._is_recorded = is_recorded()

    @property
    def resumable(self) -> bool:
        """True if the store has all tokens so far."""
        return self._num_stored == len(self._token_ids)

    @property
    def _is_caught_up(self) -> bool:
        is_finished = self._stored_finished == self._finished
        return self.resumable and is_finished and not self._touch_is_due

    async def begin(self, claim: Claim) -> bool:
        """Store the session under ``claim`` and return True; if one is stored there, return False
        and change nothing. Raises ``SessionIdTaken``.

        A store that fails or exceeds its patience may have begun the session, or do so later. The
        answer therefore goes on under ``claim``: its first write changes nothing if the session is
        stored, and stores it if not. If another answer turns out to have the session, perhaps one
        that nobody reads any more, this one goes on without being stored.
        """
        store = self._store
        assert store is not None
        session = replace(self.session, claim=claim)
        try:
            # Even after a command that failed: without a look, work may be done twice.
            async with asyncio.timeout(max(store.patience.seconds, SHORTEST_S)):
                if not await store.begin(session, self._writer, self._everything()):
                    return False
        except (TimeoutError, StoreUnavailable):
            self.go_on_under(claim)
        else:
            self.session, self._num_stored = session, len(self._token_ids)
        return True

    def go_on_under(self, claim: Claim) -> None:
        """Have the first write find out whether another answer has the session of ``claim``."""
        self.session = replace(self.session, claim=claim)
        self._is_certain = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Store the session unless it is stored already; writes end when the block is left."""
        try:
            await self._flush()
            yield
        finally:
            if self._catching_up is not None:
                self._catching_up.cancel()
                await asyncio.gather(self._catching_up, return_exceptions=True)

    async def append(self, token_ids: Sequence[int], unchecked: Collection[int]) -> None:
        """Store tokens before the client sees them. Raises ``AbortedStatus`` if another stream has
        taken the session, or its client has cancelled it.

        ``unchecked`` are the indexes in ``token_ids`` of those that the target did not check.
        """
        self._token_ids += token_ids
        self._is_unchecked += bytes([index in unchecked for index in range(len(token_ids))])
        if self._is_recorded:
            with tracer.start_as_current_span(COMMIT_SPAN):
                await self._flush()
        else:
            await self._flush()

    async def touch(self) -> None:
        """Keep the session from expiring while there is nothing to store, and check that it is
        still ours. Raises ``AbortedStatus`` as ``append`` does."""
        self._touch_is_due = True
        await self._flush()

    async def finish(self, reason: StopReason) -> None:
        """Mark the answer complete. Raises ``AbortedStatus`` as ``append`` does."""
        self._finished = reason
        await self._flush()

    async def _flush(self) -> None:
        """Write what is due, and wait for the store as long as its patience allows."""
        if self._store is None or self._is_caught_up:
            return
        if self._catching_up is not None and self._catching_up.done():
            self._collect(self._catching_up)
        patience_s = 0.0
        if self._catching_up is None:
            patience_s = self._store.patience.seconds
            await self._caught_up_within(patience_s, self._store)
        else:
            await asyncio.wait({self._catching_up}, timeout=patience_s)
            if self._catching_up.done():
                self._collect(self._catching_up)
        if not (self._catching_up is None or self.resumable or self._has_lagged):
            self._has_lagged = True
            _not_resumable.add(1)
            reason = self._store.trouble or f"no answer yet after {patience_s:g} s"
            fields = {"store": self._store.address, "reason": reason}
            # No warning: it happens on busy machines, and StoreLog warns of a store that is away.
            log.info("store lags", extra={"session": self.session.session_id, **fields})

    async def _caught_up_within(self, seconds: float, store: SessionStore) -> None:
        """Write until the store has everything, and leave to a task what takes longer."""
        with _told():
            writing = EagerWork(self._catch_up(store))
            try:
                if not await writing.wait(seconds):
                    self._catching_up = writing.go_on()
            except asyncio.CancelledError:
                writing.close()
                raise

    def _collect(self, caught_up: asyncio.Task[None]) -> None:
        """Handle the end of ``_catch_up``. Raises ``AbortedStatus`` as ``append`` does."""
        self._catching_up = None
        with _told():
            caught_up.result()

    async def _catch_up(self, store: SessionStore) -> None:
        """Write until the store has everything. Raises ``StaleEpoch`` or
        ``StoredSessionCancelled``."""
        backoff_s, was_lost = FIRST_BACKOFF_S, False
        while self._store is not None and not self._is_caught_up:
            try:
                await self._write(store)
                self._is_certain = True
            except StaleEpoch:
                if self._is_certain:
                    raise
                self._store = None
                if not self._has_lagged:
                    self._has_lagged = True
                    _not_resumable.add(1)
                fields = {"session": self.session.session_id}
                log.info("another answer has this session: going on without it", extra=fields)
            except (SessionNotFound, StoreConflict):
                # It expired, or Redis lost all or part of it: write the whole session again.
                self._num_stored = None
                if was_lost:  # and may be lost again as soon as it is written
                    backoff_s = await self._paused(backoff_s)
                was_lost = True
            except StoreUnavailable as error:
                log.debug("store away", extra={"reason": str(error)})
                backoff_s = await self._paused(backoff_s)

    async def _paused(self, backoff_s: float) -> float:
        """Pause before a retry; return the time to pause before the next."""
        # Jitter keeps sessions from all retrying at the same moment once the store is back.
        await asyncio.sleep(backoff_s * self._dice.uniform(0.5, 1))
        return min(2 * backoff_s, LONGEST_BACKOFF_S)

    async def _write(self, store: SessionStore) -> None:
        """Write what is due: the whole session, its new tokens, or that it is complete."""
        session_id, start, num_tokens = (
            self.session.session_id,
            self._num_stored,
            len(self._token_ids),
        )
        if start is None:
            await store.put(self.session, self._writer, self._everything())
            self._num_stored = num_tokens
        elif start < num_tokens or self._touch_is_due:
            await store.append(
                session_id,
                self._writer,
                first_index=start,
                token_ids=self._token_ids[start:],
                unchecked=self._unchecked_from(start),
            )
            self._num_stored = num_tokens
            self._touch_is_due = False
        elif self._finished is not None:
            await store.finish(session_id, self._writer, num_tokens, self._finished.name)
            self._stored_finished = self._finished

    def _everything(self) -> Generated:
        return Generated(tuple(self._token_ids), frozenset(self._unchecked_from(0)))

    def _unchecked_from(self, start: int) -> set[int]:
        flags = self._is_unchecked[start:]
        return {index for index, is_unchecked in enumerate(flags) if is_unchecked}


@contextmanager
def _told() -> Iterator[None]:
    """Raise what the client is told if another stream has its session, or it was cancelled."""
    try:
        yield
    except StaleEpoch as error:
        raise AbortedStatus(
            "STALE_EPOCH",
            "the client has resumed this session elsewhere",
            {"current_epoch": str(error.current_epoch)},
        ) from error
    except StoredSessionCancelled as error:
        raise AbortedStatus("SESSION_CANCELLED", str(error)) from error

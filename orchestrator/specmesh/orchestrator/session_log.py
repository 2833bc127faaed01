"""The stored side of one answer: what another orchestrator would carry on from.

The store may be away: the answer goes on all the same, and says that it can't be resumed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Self

from opentelemetry import metrics

from specmesh.serving.errors import Aborted, FailedPrecondition, NotFound, Unavailable
from specmesh.serving.sessions import (
    SessionError,
    SessionHeld,
    SessionNotFound,
    SessionRecord,
    SessionStore,
    StaleEpoch,
    StoreUnavailable,
)
from specmesh.serving.telemetry import tracer

log = logging.getLogger(__name__)

RENEW_SECONDS = 1.0

_meter = metrics.get_meter("specmesh.orchestrator")
_not_resumable = _meter.create_counter(
    "specmesh.sessions.not_resumable",
    unit="{session}",
    description="answers that were not, or not wholly, stored",
)


class SessionLog:
    """Appends to a session for as long as the store is there and the epoch is ours."""

    def __init__(self, store: SessionStore | None, session_id: str, epoch: int) -> None:
        self._store = store
        self.session_id = session_id
        self.epoch = epoch

    @classmethod
    async def create(
        cls,
        store: SessionStore | None,
        session_id: str,
        *,
        owner: str,
        request: bytes,
        prompt: Sequence[int],
    ) -> Self:
        """Begin a session under epoch 1."""
        session = cls(store, session_id, 1)
        if store is None:
            return session
        try:
            await store.create(session_id, owner=owner, request=request, prompt=prompt)
        except SessionError as error:
            session._give_up(error)
        return session

    @property
    def resumable(self) -> bool:
        """Whether everything said so far is in the store."""
        return self._store is not None

    async def append(
        self, first_index: int, token_ids: Sequence[int], unchecked: Sequence[int]
    ) -> None:
        """Store tokens before the client sees them; raises ``Aborted`` if we are fenced off.

        ``unchecked`` are the places in ``token_ids`` of those that the target did not check.
        """
        if self._store is not None:
            with tracer.start_as_current_span("specmesh.commit"):
                await self._try(
                    self._store.append(
                        self.session_id,
                        epoch=self.epoch,
                        first_index=first_index,
                        token_ids=token_ids,
                        unchecked=unchecked,
                    )
                )

    async def finish(self) -> None:
        """Mark the answer complete."""
        if self._store is not None:
            await self._try(self._store.finish(self.session_id, epoch=self.epoch))

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[None]:
        """Hold the session's lease while the body runs, however long one step takes."""
        renewal = asyncio.create_task(self._renew())
        try:
            yield
        finally:
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)

    async def _renew(self) -> None:
        while (store := self._store) is not None:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                await store.renew(self.session_id, epoch=self.epoch)
            except SessionError as error:
                # The next append meets the same and decides.
                log.debug("lease not renewed", extra={"reason": str(error)})

    async def _try(self, write: Awaitable[None]) -> None:
        try:
            await write
        except StaleEpoch as error:
            raise Aborted("STALE_EPOCH", "another orchestrator has taken this session") from error
        except SessionError as error:
            self._give_up(error)

    def _give_up(self, error: SessionError) -> None:
        self._store = None
        _not_resumable.add(1)
        log.warning(
            "session not resumable", extra={"session": self.session_id, "reason": str(error)}
        )


async def take(
    store: SessionStore | None, session_id: str, *, owner: str, epoch: int | None
) -> SessionRecord:
    """Take a session over from whoever held it; raises what the client is to be told."""
    if store is None:
        raise Unavailable("NO_STORE", "this orchestrator has no session store")
    try:
        return await store.take(session_id, owner=owner, epoch=epoch)
    except SessionNotFound as error:
        raise NotFound("SESSION_NOT_FOUND", str(error)) from error
    except StaleEpoch as error:
        current = {"current_epoch": str(error.current_epoch)}
        raise FailedPrecondition("STALE_EPOCH", str(error), current) from error
    except SessionHeld as error:
        raise FailedPrecondition("SESSION_HELD", str(error)) from error
    except StoreUnavailable as error:
        raise Unavailable("STORE_UNAVAILABLE", str(error)) from error

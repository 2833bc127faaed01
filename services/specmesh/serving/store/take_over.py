"""Takes a stored session over from the orchestrator that wrote it."""

from __future__ import annotations

from specmesh.serving.store.session_store import SessionStore
from specmesh.serving.store.stored_session import (
    Generated,
    StoredSession,
    StoreUnavailable,
    Writer,
)


async def take_over(
    store: SessionStore,
    stored: StoredSession,
    epoch: int | None,
    writer_id: str,
    received: Generated,
    *,
    exactly: bool,
) -> tuple[Writer, Generated, SessionStore | None]:
    """Take the session that was read as ``stored``; return what ``SessionStore.take`` does, and the
    store of what comes after. Raises ``SessionError``.

    A store that is full or read-only still has complete answers to tell, and those need nothing
    more of it. Such an answer is not taken, and has no store.
    """
    claim = stored.session.claim
    try:
        taken = await store.take(claim, epoch, writer_id, received, exactly=exactly)
    except StoreUnavailable:
        if exactly or not (stored.is_complete and stored.generated.begins_with(received)):
            raise
        later = stored.epoch + 1 if epoch is None else epoch
        return Writer(later, writer_id), stored.generated, None
    return *taken, store

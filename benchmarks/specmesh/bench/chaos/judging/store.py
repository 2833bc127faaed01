"""The reading of sessions from the store."""

from __future__ import annotations

from specmesh.serving.store.session_store import SessionStore
from specmesh.serving.store.stored_session import SessionNotFound, StoreUnavailable

_TIMEOUT_S = 2.0


class Unreadable(Exception):
    """The store did not answer."""


class StoredSessions:
    """Reads the sessions in the Redis at ``url`` without disturbing them."""

    def __init__(self, url: str) -> None:
        self._store = SessionStore.from_url(url, timeout_s=_TIMEOUT_S)

    async def generated(self, session_id: str, num_prompt_tokens: int) -> tuple[int, ...] | None:
        """Return the generated tokens of a session; None if there is no such session. Raises
        Unreadable."""
        try:
            tokens = await self._store.read_prefix(session_id, 1 << 24)
        except SessionNotFound:
            return None
        except StoreUnavailable as error:
            raise Unreadable(str(error)) from error
        return tokens[num_prompt_tokens:]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._store.aclose()

"""Resolution of a call's ``Prefix`` message to tokens, from the cache or from Redis."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.prefix import BLOCK_TOKENS, SALT_BYTES, PrefixChain, is_salt
from specmesh.inference.model import LanguageModel
from specmesh.mesh.v1alpha1 import tokens_pb2
from specmesh.serving.codec.wire import check_tokens
from specmesh.serving.errors import FailedPreconditionStatus
from specmesh.serving.store.session_store import SessionStore
from specmesh.serving.store.stored_session import SessionError

log = logging.getLogger(__name__)

MANY_TOKENS = 1 << 15
"""Hashing this many tokens takes milliseconds, so a thread does it while other calls go on."""


class PrefixResolver:
    """Resolves ``Prefix`` messages to their tokens."""

    def __init__(self, model: LanguageModel, store: SessionStore | None) -> None:
        self._model = model
        self._store = store
        self._reads: set[asyncio.Task[tuple[int, ...]]] = set()

    async def resolve(self, prefix: tokens_pb2.Prefix) -> PrefixChain:
        """Return all tokens of ``prefix``, at least one.

        Raises ``InvalidField``, or ``FailedPreconditionStatus`` with reason PREFIX_UNKNOWN when
        the base is neither cached here nor in the store: the caller then sends every token.
        """
        length, salt, token_ids = prefix.base_length, prefix.salt, prefix.token_ids
        self._check_length(length + len(token_ids))
        check_tokens("prefix.token_ids", token_ids, self._model.description.vocab_size)
        if length % BLOCK_TOKENS:
            raise InvalidField("prefix.base_length", f"must be a multiple of {BLOCK_TOKENS}")
        if not is_salt(salt):
            raise InvalidField("prefix.salt", f"must be empty or {SALT_BYTES} bytes")
        held = self._model.find_base(length, prefix.base_digest) if length else None
        if not length:
            chain = PrefixChain(salt=salt)
        elif held is not None and held.salt == salt:
            chain = held
        else:
            chain = await self._read(prefix)
        await _append(chain, token_ids)
        return chain

    def _check_length(self, length: int) -> None:
        limit = self._model.description.context_tokens
        if not length:
            raise InvalidField("prefix", "must hold at least one token")
        if limit and length > limit:
            raise InvalidField("prefix", f"{length} tokens exceed the context of {limit} tokens")

    async def _read(self, prefix: tokens_pb2.Prefix) -> PrefixChain:
        """Read the base from the store."""
        length = prefix.base_length
        if self._store is not None and prefix.session_id:
            chain = PrefixChain(salt=prefix.salt)
            await _append(chain, await self._stored(self._store, prefix.session_id, length))
            if len(chain) == length and chain.digest_at(length) == prefix.base_digest:
                return chain
        raise FailedPreconditionStatus(
            "PREFIX_UNKNOWN", f"this replica knows no prefix of {length} tokens with that digest"
        )

    async def _stored(self, store: SessionStore, session_id: str, length: int) -> tuple[int, ...]:
        """Return what the store has of the session's first ``length`` tokens; nothing if that takes
        longer than its patience. The read then goes on, since its end tells how the store fares."""
        read = asyncio.create_task(_read_prefix(store, session_id, length))
        self._reads.add(read)
        read.add_done_callback(self._reads.discard)
        await asyncio.wait({read}, timeout=store.patience.seconds)
        return read.result() if read.done() else ()


async def _read_prefix(store: SessionStore, session_id: str, length: int) -> tuple[int, ...]:
    try:
        return await store.read_prefix(session_id, length)
    except SessionError as error:
        log.info("prefix not in the store", extra={"reason": type(error).__name__})
        return ()


async def _append(chain: PrefixChain, token_ids: Sequence[int]) -> None:
    if len(token_ids) < MANY_TOKENS:
        chain.append(token_ids)
    else:
        await asyncio.to_thread(chain.append, token_ids)

"""The committed prefix of one request, and which replica holds how much of it."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from specmesh.decoding.prefix import BLOCK_TOKENS, SALT_BYTES, PrefixChain
from specmesh.mesh.v1alpha1 import tokens_pb2
from specmesh.orchestrator.mesh.holders import PrefixHolders


def salt_of(identity: str) -> bytes:
    """The salt of an identity's prefixes, the same at every orchestrator; empty where nobody is
    told apart."""
    if not identity:
        return b""
    return blake2b(identity.encode(), digest_size=SALT_BYTES, person=b"specmesh prefix").digest()


class CommittedPrefix:
    """The committed tokens of one request, and how many of them each replica holds.

    Tokens are only appended: what precedes a command's path stays the same after later commits.
    Replicas share what they hold among prefixes of one ``salt``.
    """

    def __init__(
        self,
        session_id: str,
        tokens: Sequence[int],
        holders: PrefixHolders | None = None,
        salt: bytes = b"",
    ) -> None:
        self.session_id = session_id
        self._chain = PrefixChain(tokens, salt)
        self._num_prompt = len(tokens)
        self._holders = holders or PrefixHolders()
        self.holds: dict[str, int] = self._holders.of(self._chain)
        """By address: how many of the tokens the replica is believed to hold."""

    @property
    def length(self) -> int:
        """Number of committed tokens, prompt included."""
        return len(self._chain)

    def commit(self, token_ids: Sequence[int]) -> None:
        """Append committed tokens."""
        self._chain.append(token_ids)

    def message(self, address: str, length: int, path: Sequence[int]) -> tokens_pb2.Prefix:
        """The first ``length`` tokens and ``path``, without the blocks that the replica holds."""
        base_length = self._base_length(address, length)
        return tokens_pb2.Prefix(
            base_length=base_length,
            base_digest=self._chain.digest_at(base_length) if base_length else b"",
            salt=self._chain.salt,
            token_ids=[*self._chain[base_length:length], *path],
            session_id=self.session_id,
        )

    def num_to_send(self, address: str, length: int) -> int:
        """How many of the first ``length`` tokens the replica does not hold."""
        return length - self._base_length(address, length)

    def seen_by(self, address: str, length: int) -> None:
        """Record that the replica answered for ``length`` committed tokens, so it holds them."""
        self.holds[address] = max(length, self.holds.get(address, 0))

    def forgotten_by(self, address: str) -> None:
        """Record that the replica may hold none of the tokens any more."""
        self.holds.pop(address, None)
        self._holders.forget(address)

    def close(self) -> None:
        """The answer ends: another one may go on from here, or begin with the same prompt."""
        for length in (self._num_prompt, self.length):
            self._holders.remember(self._chain, length, self.holds)

    def _base_length(self, address: str, length: int) -> int:
        held = min(self.holds.get(address, 0), length)
        return held // BLOCK_TOKENS * BLOCK_TOKENS

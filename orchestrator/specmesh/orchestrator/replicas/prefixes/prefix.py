"""The committed prefix of one request, and how much of it each replica holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b

from specmesh.decoding.prefix import BLOCK_TOKENS, SALT_BYTES, PrefixChain
from specmesh.mesh.v1alpha1 import tokens_pb2
from specmesh.orchestrator.replicas.prefixes.holders import PrefixHolders
from specmesh.orchestrator.replicas.prefixes.landmarks import worth_noting
from specmesh.orchestrator.replicas.prefixes.shared_holders import Search


def salt_of(identity: str, cache_salt: str = "") -> bytes:
    """Return the salt of the prefixes of an identity's requests with this ``cache_salt``, the same
    at every orchestrator; empty if callers are not told apart and the request has none."""
    salt = b""
    for secret, person in ((identity, b"specmesh prefix"), (cache_salt, b"specmesh salt")):
        if secret:
            digest = blake2b(salt + secret.encode(), digest_size=SALT_BYTES, person=person)
            salt = digest.digest()
    return salt


class CommittedPrefix:
    """The committed tokens of one request, and how many of them each replica holds.

    Tokens are only appended: the tokens before a command's path do not change with later commits.
    Replicas are named by their identity. Only prefixes with the same ``salt`` share cache blocks.
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
        self._num_at_first = len(tokens)
        self._holders = holders or PrefixHolders()
        self.holds: dict[str, int] = self._holders.of(self._chain)
        """Number of the tokens that each replica is believed to hold."""
        self._latest_asked: tuple[int, int, tuple[int, ...]] | None = None
        self._latest = tokens_pb2.Prefix()

    @property
    def length(self) -> int:
        """Number of committed tokens, prompt included."""
        return len(self._chain)

    def commit(self, token_ids: Sequence[int]) -> None:
        """Append committed tokens."""
        self._chain.append(token_ids)

    def search(self, replicas: Collection[str]) -> Search | None:
        """Start to ask the other orchestrators who holds the tokens, unless one of ``replicas`` is
        known to hold all of them."""
        num_blocks = self.length // BLOCK_TOKENS
        if any(self.holds.get(each, 0) // BLOCK_TOKENS >= num_blocks for each in replicas):
            return None
        return self._holders.search(self._chain)

    async def learn(self, search: Search | None) -> None:
        """Wait for the result of ``search``, for as long as that is worthwhile, and remember it."""
        if search is not None:
            for replica, num_held in (await search.result()).items():
                self.holds[replica] = max(num_held, self.holds.get(replica, 0))

    def message(self, replica: str, length: int, path: Sequence[int]) -> tokens_pb2.Prefix:
        """Return the first ``length`` tokens and ``path``, minus the blocks the replica holds. The
        message must not be changed."""
        base_length = self._base_length(replica, length)
        asked = base_length, length, tuple(path)
        # A drafter and a verifier are mostly sent the same, at first a whole prompt.
        if asked != self._latest_asked:
            self._latest_asked = asked
            self._latest = tokens_pb2.Prefix(
                base_length=base_length,
                base_digest=self._chain.digest_at(base_length) if base_length else b"",
                salt=self._chain.salt,
                token_ids=[*self._chain[base_length:length], *path],
                session_id=self.session_id,
            )
        return self._latest

    def num_to_send(self, replica: str, length: int) -> int:
        """Return how many of the first ``length`` tokens the replica does not hold."""
        return length - self._base_length(replica, length)

    def seen_by(self, replica: str, length: int) -> None:
        """Record that the replica answered for ``length`` committed tokens, so it holds them."""
        num_held = self.holds.get(replica, 0)
        self.holds[replica] = max(length, num_held)
        if num_held < self._num_at_first <= length:
            # Now, for requests with the same prompt, and for a resumption if we crash.
            self._note(self._num_at_first, {replica: length})

    def forgotten_by(self, replica: str) -> None:
        """Record that the replica may no longer hold any of these tokens."""
        self.holds.pop(replica, None)
        self._holders.forget(self._chain, replica)

    def close(self) -> None:
        """Note the holders as the answer ends: another prompt may continue it or repeat its own."""
        self._note(self.length, self.holds)

    def _note(self, length: int, holds: Mapping[str, int]) -> None:
        lengths = worth_noting(length, ends={self._num_at_first, length})
        self._holders.remember(self._chain, lengths, holds)

    def _base_length(self, replica: str, length: int) -> int:
        held = min(self.holds.get(replica, 0), length)
        return held // BLOCK_TOKENS * BLOCK_TOKENS

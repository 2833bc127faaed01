"""Which replicas hold which prefixes, remembered from one answer to the next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence

from specmesh.decoding.prefix import BLOCK_TOKENS, PrefixChain
from specmesh.orchestrator.replicas.prefixes.shared_holders import Search, SharedHolders

MAX_PREFIXES = 16384


class PrefixHolders:
    """Beliefs about the replicas' KV caches, by the digest of a prefix of full blocks. Replicas are
    named by their identity.

    With it the next turn of a conversation, or the same prompt again, goes to a replica that
    needs no prefill for what it has seen. A belief that is wrong costs one message: a replica
    says what it lacks, and gets it. Of more than ``max_prefixes`` the least recently used go.

    What is remembered is told to the other orchestrators through ``shared``, if there is one, and
    what they remember can be looked for there.
    """

    def __init__(
        self, max_prefixes: int = MAX_PREFIXES, shared: SharedHolders | None = None
    ) -> None:
        self._max_prefixes = max_prefixes
        self._shared = shared
        self._holders: OrderedDict[bytes, set[str]] = OrderedDict()

    def remember(
        self, chain: PrefixChain, lengths: Sequence[int], holds: Mapping[str, int]
    ) -> None:
        """Take note of who holds the beginnings of ``chain`` of each of ``lengths``, ascending and
        whole blocks each, by ``holds``: how many of its tokens each replica holds."""
        for length in lengths:
            holders = {replica for replica, held in holds.items() if held >= length}
            if holders:
                digest = chain.digest_at(length)
                self._holders[digest] = holders | self._holders.pop(digest, set())
        while len(self._holders) > self._max_prefixes:
            self._holders.popitem(last=False)
        if self._shared is not None:
            self._shared.note(chain, lengths, holds)

    def of(self, chain: PrefixChain) -> dict[str, int]:
        """How many of the tokens of ``chain`` each replica holds, of those that hold any."""
        holds: dict[str, int] = {}
        for num_blocks, digest in enumerate(chain.digests, start=1):
            for replica in self._holders.get(digest, ()):
                holds[replica] = num_blocks * BLOCK_TOKENS
        return holds

    def search(self, chain: PrefixChain) -> Search | None:
        """Begin to ask the other orchestrators; None if that is no use now."""
        return None if self._shared is None else self._shared.search(chain)

    def forget(self, chain: PrefixChain, replica: str) -> None:
        """Believe no longer that the replica holds ``chain``, or a beginning of it.

        That says nothing of its other prefixes: replicas evict one at a time.
        """
        for digest in chain.digests:
            self._holders.get(digest, set()).discard(replica)

    def keep(self, replicas: Collection[str]) -> None:
        """Forget all replicas but these: a process that is gone never comes back."""
        for digest, holders in list(self._holders.items()):
            holders.intersection_update(replicas)
            if not holders:
                del self._holders[digest]

"""The replicas that hold each prefix, remembered from one answer to the next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence

from specmesh.decoding.prefix import BLOCK_TOKENS, PrefixChain
from specmesh.orchestrator.replicas.prefixes.shared_holders import Search, SharedHolders

MAX_PREFIXES = 16384


class PrefixHolders:
    """Beliefs about the replicas' KV caches, by the digest of a prefix of full blocks. Replicas are
    named by their identity.

    They let the next turn of a conversation, or a repeated prompt, go to a replica that needs no
    prefill for what it has seen. A wrong belief costs one message: the replica says what it lacks
    and is sent it. Beyond ``max_prefixes``, the least recently used are forgotten.

    If there is ``shared``, it tells the other orchestrators what is remembered here, and finds what
    they remember.
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
        """Remember the holders of the beginnings of ``chain`` with the given ``lengths``, ascending
        and in whole blocks. ``holds`` is the number of its tokens that each replica holds."""
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
        """Return how many tokens of ``chain`` each replica holds, if it holds any."""
        holds: dict[str, int] = {}
        for num_blocks, digest in enumerate(chain.digests, start=1):
            for replica in self._holders.get(digest, ()):
                holds[replica] = num_blocks * BLOCK_TOKENS
        return holds

    def search(self, chain: PrefixChain) -> Search | None:
        """Start to ask the other orchestrators; return None if that is useless now."""
        return None if self._shared is None else self._shared.search(chain)

    def forget(self, chain: PrefixChain, replica: str) -> None:
        """Stop believing that the replica holds ``chain`` or a beginning of it.

        Beliefs about its other prefixes stay, because replicas evict one prefix at a time.
        """
        for digest in chain.digests:
            self._holders.get(digest, set()).discard(replica)

    def keep(self, replicas: Collection[str]) -> None:
        """Forget all replicas except ``replicas``: a process that is gone never comes back."""
        for digest, holders in list(self._holders.items()):
            holders.intersection_update(replicas)
            if not holders:
                del self._holders[digest]

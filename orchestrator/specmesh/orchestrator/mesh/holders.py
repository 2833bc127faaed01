"""Which replicas hold which prefixes, remembered from one answer to the next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from specmesh.decoding.prefix import BLOCK_TOKENS, PrefixChain

MAX_PREFIXES = 4096


class PrefixHolders:
    """Beliefs about the replicas' KV caches, by the digest of a prefix of full blocks.

    With it the next turn of a conversation, or the same prompt again, goes to a replica that
    needs no prefill for what it has seen. A belief that is wrong costs one message: a replica
    says what it lacks, and gets it. Of more than ``max_prefixes`` the least recently used go.
    """

    def __init__(self, max_prefixes: int = MAX_PREFIXES) -> None:
        self._max_prefixes = max_prefixes
        self._holders: OrderedDict[bytes, set[str]] = OrderedDict()

    def remember(self, chain: PrefixChain, length: int, holds: Mapping[str, int]) -> None:
        """Take note of who holds the first ``length`` tokens of ``chain``, by ``holds``: how many
        of its tokens each address holds."""
        base_length = length // BLOCK_TOKENS * BLOCK_TOKENS
        holders = {address for address, held in holds.items() if held >= base_length}
        if base_length and holders:
            digest = chain.digest_at(base_length)
            holders |= self._holders.pop(digest, set())
            self._holders[digest] = holders
        if len(self._holders) > self._max_prefixes:
            self._holders.popitem(last=False)

    def of(self, chain: PrefixChain) -> dict[str, int]:
        """How many of the tokens of ``chain`` each address holds, of those that hold any."""
        holds: dict[str, int] = {}
        for num_blocks, digest in enumerate(chain.digests, start=1):
            for address in self._holders.get(digest, ()):
                holds[address] = num_blocks * BLOCK_TOKENS
        return holds

    def forget(self, address: str) -> None:
        """Whatever that replica held, it may hold no longer."""
        for holders in self._holders.values():
            holders.discard(address)

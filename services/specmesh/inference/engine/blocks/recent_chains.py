"""The prefixes of recent calls as whole chains, to copy from."""

from __future__ import annotations

from collections import OrderedDict

from specmesh.decoding.prefix import PrefixChain

MAX_CHAINS = 1024
"""Chains of so many calls in turn are found at once; far more than share a forward pass, since each
that is not found is put together again from its blocks."""
LOOK_BACK = 64
"""The number of last blocks of a chain at which the end of an earlier one is looked for."""


class RecentChains:
    """The latest ``MAX_CHAINS`` chains, with at most ``max_tokens`` tokens; a chain replaces those
    that it continues by less than ``LOOK_BACK`` blocks."""

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._num_tokens = 0
        self._chains: OrderedDict[bytes, PrefixChain] = OrderedDict()
        """Chains by the digest of their full blocks, the latest last."""

    def add(self, chain: PrefixChain) -> None:
        """Add ``chain``, which must not change any more, unless it has no full block."""
        if not chain.digests:
            return
        for digest in chain.digests[-LOOK_BACK:]:
            if digest in self._chains:
                self._remove(digest)
        self._chains[chain.digests[-1]] = chain
        self._num_tokens += len(chain)
        while len(self._chains) > MAX_CHAINS or self._num_tokens > self._max_tokens:
            self._remove(next(iter(self._chains)))

    def find(self, length: int, digest: bytes) -> PrefixChain | None:
        """Return the first ``length`` tokens of a chain, whole blocks, as a new chain, if they have
        that ``digest``."""
        whole = self._chains.get(digest)  # nearly always
        chain = whole if whole is not None else self._holding(length, digest)
        if chain is None or length > len(chain) or chain.digest_at(length) != digest:
            return None
        found = PrefixChain(chain)
        found.truncate(length)
        return found

    def _holding(self, length: int, digest: bytes) -> PrefixChain | None:
        """Return the latest chain that goes on after ``length`` tokens with that ``digest``."""
        for chain in reversed(self._chains.values()):
            if length <= len(chain) and chain.digest_at(length) == digest:
                return chain
        return None

    def _remove(self, digest: bytes) -> None:
        self._num_tokens -= len(self._chains.pop(digest))

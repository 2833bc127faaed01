"""vLLM requests whose call has ended, for the next call of the same session to continue in.

A new request is expensive: vLLM looks its prefix up, sends it to the workers and lays it out in
their batch. Continuing an existing request costs a fraction of that, as a decoding step does. So
requests stay, with their blocks, until other calls need the blocks: no message announces the end of
a session.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from specmesh.decoding.prefix import PrefixChain


class Idle(Protocol):
    """A request whose call has ended."""

    request_id: str
    chain: PrefixChain
    """The tokens that have been computed."""

    @property
    def num_sure(self) -> int:
        """The number of those tokens that are not part of a draft."""


R = TypeVar("R", bound=Idle)


class IdleRequests(Generic[R]):
    """Idle requests, indexed by the digest of the full blocks before their draft."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._by_digest: defaultdict[bytes, list[R]] = defaultdict(list)
        self._by_name: dict[str, R] = {}
        """Requests by name, longest idle first."""
        self._digests: dict[str, bytes] = {}
        """The digest of each request in ``_by_digest``, by name."""

    def __len__(self) -> int:
        return len(self._by_name)

    def requests(self) -> list[R]:
        """Return all requests, longest idle first. Any thread may call this."""
        return list(self._by_name.values())

    def add(self, request: R) -> list[R]:
        """Add ``request``; remove and return those that it replaces: it begins with all their
        tokens before the draft."""
        digest = request.chain.digest_at(self._start_of(request))
        alike = self._by_digest.get(digest, ())
        replaced = [each for each in alike if self._num_shared(each, request.chain) is not None]
        for each in replaced:
            self.remove(each)
        self._by_digest[digest].append(request)
        self._by_name[request.request_id] = request
        self._digests[request.request_id] = digest
        return replaced

    def find(self, chain: PrefixChain) -> tuple[R, int] | None:
        """Return a request that shares the most blocks with ``chain``, and the number of tokens
        that they share, including accepted draft tokens. ``chain`` must hold all of its tokens
        before the draft. None if there is no such request."""
        last = len(chain) // self._block_tokens * self._block_tokens
        for length in range(last, -1, -self._block_tokens):
            for request in self._by_digest.get(chain.digest_at(length), ()):
                num_shared = self._num_shared(request, chain)
                if num_shared is not None:
                    return request, num_shared
        return None

    def remove(self, request: R) -> None:
        """Remove ``request``, which is no longer idle."""
        del self._by_name[request.request_id]
        digest = self._digests.pop(request.request_id)
        self._by_digest[digest].remove(request)
        if not self._by_digest[digest]:
            del self._by_digest[digest]

    def _num_shared(self, request: R, chain: PrefixChain) -> int | None:
        """Return the number of tokens that ``request`` shares with ``chain``, whose full blocks
        before the draft have its digest. None if they don't share all tokens before the draft."""
        start = self._start_of(request)
        num_shared = start + _num_equal(request.chain[start:], chain[start:])
        return num_shared if num_shared >= request.num_sure else None

    def _start_of(self, request: R) -> int:
        return request.num_sure // self._block_tokens * self._block_tokens


def _num_equal(tokens: Sequence[int], others: Sequence[int]) -> int:
    if tokens == others[: len(tokens)]:
        return len(tokens)
    for index, (token, other) in enumerate(zip(tokens, others, strict=False)):
        if token != other:
            return index
    return min(len(tokens), len(others))

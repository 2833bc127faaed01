"""Requests of vLLM's whose call has ended, and in which the next call of the same session goes on.

A new request is dear: vLLM looks its prefix up, sends it to the workers and lays it out in their
batch. One that it has already costs a fraction of that, as one does that decodes. So requests stay,
with their blocks, until somebody else needs these: nobody says when a session has ended.
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
        """How many of them are none of a draft."""


R = TypeVar("R", bound=Idle)


class IdleRequests(Generic[R]):
    """Found by the digest of the whole blocks that they surely hold."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._by_digest: defaultdict[bytes, list[R]] = defaultdict(list)
        self._by_name: dict[str, R] = {}
        """The first has been idle for the longest time."""
        self._digests: dict[str, bytes] = {}
        """By name, those under which they are found."""

    def __len__(self) -> int:
        return len(self._by_name)

    def requests(self) -> list[R]:
        """The first has been idle for the longest time; for any thread."""
        return list(self._by_name.values())

    def add(self, request: R) -> list[R]:
        """Returns those whose place it takes: all that was sure of them is its beginning."""
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
        """A request all of which is in ``chain`` but for a draft, and how many tokens they share,
        those of the draft that were accepted included. One that shares the most blocks."""
        last = len(chain) // self._block_tokens * self._block_tokens
        for length in range(last, -1, -self._block_tokens):
            for request in self._by_digest.get(chain.digest_at(length), ()):
                num_shared = self._num_shared(request, chain)
                if num_shared is not None:
                    return request, num_shared
        return None

    def remove(self, request: R) -> None:
        """It is idle no more."""
        del self._by_name[request.request_id]
        digest = self._digests.pop(request.request_id)
        self._by_digest[digest].remove(request)
        if not self._by_digest[digest]:
            del self._by_digest[digest]

    def _num_shared(self, request: R, chain: PrefixChain) -> int | None:
        """How many tokens it shares with ``chain``, which begins as the digest says; None if not
        even those that are sure."""
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

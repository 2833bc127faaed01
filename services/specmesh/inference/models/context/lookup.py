"""Drafters without a network, which guess only from the tokens in the context.

Leviathan et al. 2023 (Sections 3.6 and 4) list them: n-grams counted from a corpus, copying from
the context, random tokens. They cost next to nothing, so even a low acceptance rate pays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.noise import Purpose, uniforms
from specmesh.decoding.prefix import PrefixChain
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.model import (
    DEFAULT_ROOM_TOKENS,
    Cancellation,
    ForwardRequest,
    ForwardSize,
    Logits,
    ModelDescription,
    score_alone,
)
from specmesh.inference.models.context.prefix_cache import PrefixCache

CACHED_TOKENS = 1 << 22
"""The tokens of recent prefixes that are kept, some 20 bytes each: those of 256 answers of 16,384
tokens."""
Context: TypeAlias = NDArray[np.uint32]


class NextTokenGuess(Protocol):
    """A function that guesses the next token: it returns logits ``[vocab]``, all −inf without a
    guess."""

    def __call__(self, context: Context) -> Logits:
        """Return the logits after the tokens ``context`` ``[n]``."""
        ...


class ContextModel:
    """A ``LanguageModel`` made from a guess; it caches only the tokens of recent prefixes."""

    max_batch = 1
    pool = None

    def __init__(self, description: ModelDescription, guess: NextTokenGuess) -> None:
        self.description = description
        self._guess = guess
        self._cache: PrefixCache[None] = PrefixCache(CACHED_TOKENS)

    def open(
        self,
        prefix: Sequence[int],
        cancellation: Cancellation,
        room: int = DEFAULT_ROOM_TOKENS,  # noqa: ARG002
    ) -> ContextSequence:
        """Open a sequence; its guesses are too short to be interrupted."""
        return ContextSequence(self._guess, self._cache, prefix, cancellation)

    def forward(self, requests: Sequence[ForwardRequest]) -> list[Logits | None]:
        """Return the logits of the one request."""
        return score_alone(requests)

    def find_base(self, base_length: int, digest: bytes) -> PrefixChain | None:
        """Return the base if a recent prefix begins with it, else None."""
        return self._cache.find_base(base_length, digest)


class ContextSequence:
    """A ``SequenceState`` that guesses anew after each node."""

    def __init__(
        self,
        guess: NextTokenGuess,
        cache: PrefixCache[None],
        prefix: Sequence[int],
        cancellation: Cancellation,
    ) -> None:
        self.cancellation = cancellation
        self._guess = guess
        self._cache = cache
        self._chain = PrefixChain(prefix)
        self._origin, self._shared = cache.longest(self._chain)
        self._tree = EMPTY
        self._num_rows = 0
        self.num_cached_tokens = min(self._shared, len(prefix) - 1)
        self.num_computed_tokens = 0
        self.latest_forward = ForwardSize()

    def score(self, tree: TokenTree) -> Logits:
        """Return a guess after each new node; the first call counts the prefix as computed."""
        nodes = range(self._num_rows, len(tree) + 1)
        rows = [self._guess(context) for context in self._contexts(tree, nodes)]
        if not self._num_rows:
            self.num_computed_tokens += len(self._chain) - self.num_cached_tokens - 1
        self._tree, self._num_rows = tree, len(tree) + 1
        self.num_computed_tokens += len(rows)
        self.latest_forward = ForwardSize(1, len(rows))
        return np.stack(rows) if len(rows) > 1 else rows[0][np.newaxis]

    def _contexts(self, tree: TokenTree, nodes: Iterable[int]) -> Iterator[Context]:
        """Yield the prefix and the path to each of ``nodes``, valid until the next one is yielded:
        a long prefix is copied once."""
        length = len(self._chain)
        context = np.empty(length + len(tree), np.uint32)
        context[:length] = self._chain
        for node in nodes:
            path = tree.tokens_on(tree.path(node))
            context[length : length + len(path)] = path
            yield context[: length + len(path)]

    def close(self, keep: Sequence[int]) -> None:
        """Cache the tokens of the prefix and of the path ``keep``; there is no other state."""
        self._chain.append(self._tree.tokens_on(keep))
        self._cache.put(self._chain, None, self._origin, self._shared)


@dataclass(frozen=True, slots=True)
class PromptLookup:
    """A guess that copies the token after the same n-gram in the context; the longest match counts,
    and among those the latest."""

    vocab_size: int
    max_ngram: int = 3

    def __call__(self, context: Context) -> Logits:
        """Return logits: 0 for the copied token and −inf for all others, or all −inf without a
        match."""
        row = np.full(self.vocab_size, -np.inf, dtype=np.float32)
        if (end := self._end_of_match(context)) is not None:
            row[context[end + 1]] = 0.0
        return row

    def _end_of_match(self, context: Context) -> int | None:
        """Return the index of the last token of the match. The context is searched once, for its
        last token: the ends of longer matches are among those of shorter ones."""
        ends = np.flatnonzero(context[:-1] == context[-1])
        for back in range(1, min(self.max_ngram, len(context))):
            longer = ends[ends >= back]
            longer = longer[context[longer - back] == context[-1 - back]]
            if not longer.size:
                break
            ends = longer
        return int(ends[-1]) if ends.size else None


@dataclass(frozen=True, slots=True)
class RandomTokens:
    """A random guess: even this speeds decoding up a little (Leviathan et al., Sec. 3.6)."""

    vocab_size: int

    def __call__(self, context: Context) -> Logits:
        """Return equal logits, except for a token drawn by position, which is a little likelier, so
        that greedy drafting varies."""
        row = np.zeros(self.vocab_size, np.float32)
        (place,) = uniforms(0, len(context), Purpose.DRAFT, np.zeros(1, np.int64))
        row[int(place * self.vocab_size)] = 1e-3
        return row

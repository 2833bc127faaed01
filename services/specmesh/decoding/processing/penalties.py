"""Penalties for tokens that have occurred before."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.sampling import Sampling

Values = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]


class Penalties:
    """The penalties of one request behind ``prefix``, whose first ``sampling.num_prompt_tokens``
    tokens are the prompt and whose others are the answer so far.

    The repetition penalty (Keskar et al. 2019, section 4.1) is for tokens of prompt and answer, the
    other two, which are OpenAI's, are for tokens of the answer alone.
    """

    def __init__(self, sampling: Sampling, prefix: Ids) -> None:
        self._repetition = np.float32(sampling.repetition_penalty)
        self._presence = np.float32(sampling.presence_penalty)
        self._frequency = np.float32(sampling.frequency_penalty)
        self._prefix = prefix
        self._answer = prefix[sampling.num_prompt_tokens :]

    def apply(self, logits: Values, path: Sequence[int]) -> None:
        """Change ``logits`` ``[vocab]`` in place, behind the prefix and then ``path``."""
        size = logits.size
        added, num_added = np.unique(np.asarray(path, np.int64), return_counts=True)
        added, num_added = added[added < size], num_added[added < size]
        again = self._penalised(logits, added, self._counts_of(added) + num_added)
        seen, counts = self._seen
        num_seen = seen.searchsorted(size)
        seen, counts = seen[:num_seen], counts[:num_seen]
        logits[seen] = self._penalised(logits, seen, counts)
        logits[added] = again

    def _penalised(self, logits: Values, token_ids: Ids, counts: Ids) -> Values:
        """Return the new logits of ``token_ids`` ``[n]``, which occur in prompt or answer, in the
        answer ``counts`` ``[n]`` times."""
        values = logits[token_ids]
        if self._repetition != 1:
            positive = values > 0
            values[positive] /= self._repetition
            values[~positive] *= self._repetition
        if self._presence:
            values[counts > 0] -= self._presence
        if self._frequency:
            values -= counts.astype(values.dtype) * self._frequency
        return values

    @cached_property
    def _seen(self) -> tuple[Ids, Ids]:
        """The tokens of the prefix that may get a penalty, ascending, and how often each occurs in
        the answer."""
        if self._repetition == 1:
            return self._counts
        seen = _distinct(self._prefix)
        return seen, self._counts_of(seen)

    @cached_property
    def _counts(self) -> tuple[Ids, Ids]:
        """The tokens of the answer, ascending, and how often each occurs in it."""
        return np.unique(self._answer, return_counts=True)

    def _counts_of(self, token_ids: Ids) -> Ids:
        tokens, counts = self._counts
        if not tokens.size:
            return np.zeros_like(token_ids)
        nearest = np.minimum(tokens.searchsorted(token_ids), tokens.size - 1)
        return np.where(tokens[nearest] == token_ids, counts[nearest], 0)


def _distinct(token_ids: Ids) -> Ids:
    """Return the different ones, ascending. A prefix may have 100,000, which would take many times
    as long to sort or to hash."""
    occurs = np.zeros(token_ids.max(initial=-1) + 1, np.bool_)
    occurs[token_ids] = True
    return np.flatnonzero(occurs)

"""Tokens that a request does not allow, always or at some positions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.sampling import Sampling

Values = NDArray[np.floating[Any]]


class Bans:
    """The bans of one request behind ``prefix``. A banned token gets the logit minus infinity."""

    def __init__(self, sampling: Sampling, prefix: Sequence[int]) -> None:
        self._allowed = _ids(sampling.allowed_token_ids)
        self._always = _ids(sampling.banned_token_ids)
        self._ends = _ids(sampling.end_token_ids)
        self._num_before_ends = sampling.num_prompt_tokens + sampling.min_tokens - len(prefix)
        """The number of tokens behind the prefix without an end; none if it is not positive."""
        self._last_tokens: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        """The last tokens of banned sequences by all tokens before them."""
        for *before, last in sampling.banned_sequences:
            self._last_tokens[tuple(before)].append(last)
        self._num_before = {len(before) for before in self._last_tokens}
        longest = max(self._num_before, default=0)
        self._tail = tuple(prefix[max(0, len(prefix) - longest) :])

    def apply(self, logits: Values, path: Sequence[int]) -> None:
        """Change ``logits`` ``[vocab]`` in place, behind the prefix and then ``path``."""
        size = logits.size
        if self._allowed.size:
            allowed = self._allowed[self._allowed < size]
            values = logits[allowed]
            logits.fill(-np.inf)
            logits[allowed] = values
        logits[self._always[self._always < size]] = -np.inf
        if len(path) < self._num_before_ends:
            logits[self._ends[self._ends < size]] = -np.inf
        if self._last_tokens:
            self._ban_last_tokens(logits, (*self._tail, *path))

    def _ban_last_tokens(self, logits: Values, tail: tuple[int, ...]) -> None:
        """Ban tokens that would complete a sequence at the end of ``tail``."""
        found = _ids(
            [
                token
                for length in self._num_before
                for token in self._last_tokens.get(tail[len(tail) - length :], ())
                if length <= len(tail) and token < logits.size
            ]
        )
        values = logits[found]
        logits[found] = -np.inf
        if found.size and logits.max() == -np.inf:  # nothing would be left
            logits[found] = values


def _ids(token_ids: Sequence[int]) -> NDArray[np.int64]:
    return np.array(token_ids, np.int64)

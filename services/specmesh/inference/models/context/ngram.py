"""An n-gram model counted from a corpus: unigram, bigram and up, with stupid backoff.

The logits after a context come from the longest known n-gram (Brants et al. 2007, without the lower
orders' mass: a drafter needs the likeliest token, not smooth tails).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specmesh.inference.model import Logits

MAX_ORDER = 5


@dataclass(frozen=True, slots=True)
class _Counts:
    """The followers of each context of one length: context i was followed by
    ``followers[starts[i]:starts[i + 1]]``, with ``counts`` at the same indices."""

    contexts: npt.NDArray[np.uint64]
    starts: npt.NDArray[np.int64]
    followers: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]


class NGram:
    """A ``NextTokenGuess``: log of relative frequencies after the longest known context."""

    def __init__(self, tokens: Sequence[int], vocab_size: int, order: int) -> None:
        """Count ``tokens``; ``order`` 1 is unigram, 2 bigram and so on up to ``MAX_ORDER``."""
        if not 1 <= order <= MAX_ORDER:
            raise ValueError(f"order must be 1 to {MAX_ORDER}, not {order}")
        self._vocab_size = vocab_size
        array = np.asarray(tokens, dtype=np.uint64)
        self._by_length = [_count(array, length) for length in range(min(order, len(array)))]

    def __call__(self, context: npt.NDArray[np.uint32]) -> Logits:
        """Return the logits after ``context``; −inf for tokens that never followed it."""
        row = np.full(self._vocab_size, -np.inf, dtype=np.float32)
        for length in range(min(len(self._by_length) - 1, len(context)), -1, -1):
            table = self._by_length[length]
            key = _key(context[None, len(context) - length :].astype(np.uint64))[0]
            at = int(np.searchsorted(table.contexts, key))
            if at < len(table.contexts) and table.contexts[at] == key:
                found = slice(table.starts[at], table.starts[at + 1])
                counts = table.counts[found]
                row[table.followers[found]] = np.log(counts / counts.sum())
                break
        return row


def _key(windows: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash for each row of ``windows [n, length]`` (FNV-1a over whole tokens)."""
    key = np.full(len(windows), 0xCBF29CE484222325, dtype=np.uint64)
    for column in windows.T:
        key = (key ^ column) * np.uint64(0x100000001B3)
        key ^= key >> np.uint64(29)
    return key


def _count(tokens: npt.NDArray[np.uint64], length: int) -> _Counts:
    windows = np.lib.stride_tricks.sliding_window_view(tokens, length + 1)
    keys, followers = _key(windows[:, :length]), windows[:, length]
    order = np.lexsort((followers, keys))
    keys, followers = keys[order], followers[order]
    new_pair = np.r_[True, (keys[1:] != keys[:-1]) | (followers[1:] != followers[:-1])]
    pairs = np.flatnonzero(new_pair)
    counts = np.diff(np.r_[pairs, len(keys)])
    pair_keys = keys[pairs]
    starts = np.flatnonzero(np.r_[True, pair_keys[1:] != pair_keys[:-1]])
    return _Counts(
        contexts=pair_keys[starts],
        starts=np.r_[starts, len(pairs)].astype(np.int64),
        followers=followers[pairs].astype(np.int64),
        counts=counts.astype(np.int64),
    )

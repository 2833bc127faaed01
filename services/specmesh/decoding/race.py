"""The race of a row's tokens: which have the highest log-probability + noise, found exactly without
the noise of most tokens.

A block's highest noise and its likeliest token bound what any of its tokens can reach. The tokens
that have the highest noise of their blocks are scored first. They are a fair sample, so the best of
them come close to the best of all: the k-th best of them is a threshold that about 64 k tokens can
reach, only these are scored, and the k best are among them.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.logits_row import NO_WEIGHT, LogitsRow, likeliest, sampled_of
from specmesh.decoding.maxima import nth_highest
from specmesh.decoding.noise import (
    BLOCK_IDS,
    BLOCK_STRIDE,
    SPAN,
    BlockNoise,
    Purpose,
    gumbel,
    gumbel_below,
)

_SLACK, _RELATIVE_SLACK = 1e-9, 1e-14
"""More than the rounding errors of scores, and of logits near their largest number."""

LEAST = -1e300
"""A score below that of any token that can be drawn."""

T = TypeVar("T", float, NDArray[np.float64])

_CUT = math.exp(-np.euler_gamma)


_FEW_BLOCKS = 32
"""The number of blocks whose tokens are all scored, if those of other blocks are too unlikely."""
_FEW = 1 << 11
"""The size up to which vocabularies are scored in full for their best token: searching costs
more."""


def winner(row: LogitsRow, seed: int, position: int, purpose: Purpose) -> int:
    """Return the token of ``row`` with the highest score, log-weight + Gumbel noise; ties go to the
    lower id."""
    if row.is_large:
        floor = row.peak - row.temperature * SPAN
        near = row.maxima >= floor
        # There is none where the row lacks its likeliest tokens.
        num_near = np.count_nonzero(near)
        if not 0 < num_near <= _FEW_BLOCKS:
            return int(Race(row, seed, position, purpose, 1).token_ids[0])
        able = row.members(near.nonzero()[0], np.full(num_near, floor))
        if able.size == 1:
            return int(able[0])
        row = row.only(able)
    if row.token_ids is not None:
        scores = gumbel(seed, position, purpose, row.token_ids)
        scores += row.logs
        return int(row.token_ids[scores.argmax()])
    if row.logits.size <= _FEW:
        scores = gumbel_below(seed, position, purpose, row.logits.size)
        scores += row.logs
        return int(scores.argmax())
    # As in a large vocabulary, but there are few tokens in each block, so it bounds each of them.
    noise = BlockNoise(seed, position, purpose, BLOCK_STRIDE)
    size = row.logits.size
    present = (noise.winners < size).nonzero()[0]
    won = row.logs[noise.winners[present]] + noise.highest[present]
    threshold = float(won.max(initial=-np.inf))
    bounds = row.logs + np.resize(noise.highest, size)
    slack = _SLACK + abs(threshold) * _RELATIVE_SLACK
    contenders = (bounds >= threshold - slack).nonzero()[0]
    scores = noise.at(contenders)
    scores += row.logs[contenders]
    return int(contenders[scores.argmax()])


class Race:
    """The ``count`` tokens of ``row`` with the highest score, log-weight + Gumbel noise.

    ``token_ids`` are best first (ties go to the lower id), fewer if the row has fewer, and
    ``scores`` are theirs.
    """

    def __init__(
        self, row: LogitsRow, seed: int, position: int, purpose: Purpose, count: int
    ) -> None:
        self._row = row
        stream = (seed, position, purpose)
        self._scored = row.token_ids
        """The tokens whose score is computed; None stands for all of the vocabulary."""
        if row.is_large:
            self._noise = BlockNoise(*stream, row.maxima.size)
            self._scored = self._contenders(count)
            scores = self._noise.at(self._scored)
            scores += row.log_weights(self._scored)
        else:
            if self._scored is None:
                scores = gumbel_below(*stream, row.logits.size)
            else:
                scores = gumbel(*stream, self._scored)
            scores += row.logs
        self._all_scores = scores
        best = likeliest(scores, count)
        best = best[scores[best] > -np.inf]
        self.token_ids = best if self._scored is None else self._scored[best]
        self.scores = scores[best]

    def softmax(self) -> tuple[NDArray[np.float64], float]:
        """Return the softmax of all tokens' scores, for ``token_ids``, and its entropy in nats.

        In a large vocabulary most tokens have no score. Their terms p / E are exact for those with
        the least E of their block, M, and estimated for the others: p / E has the expectation
        p exp(M) E1(M), about p log(1 + exp(-gamma) / M), and the sum of these p is estimated from a
        sample of each block. The probabilities are thus within a few percent of the exact ones,
        without bias, and the entropy is within 0.3.
        """
        weights = np.exp(self._all_scores)
        total = float(weights.sum())
        # Not with BLAS, whose threads stall for milliseconds when the cores are busy.
        energy = float(np.einsum("i,i", weights, np.maximum(self._all_scores, NO_WEIGHT)))
        if self._row.is_large:
            for more_total, more_energy in (self._of_winners(), self._of_others()):
                total += more_total
                energy += more_energy
        return np.exp(self.scores) / total, math.log(total) - energy / total

    def _contenders(self, count: int) -> NDArray[np.int64]:
        """Return all tokens that can be among the ``count`` best, ascending."""
        row, noise = self._row, self._noise
        self._won = won = row.scaled(row.logits.take(noise.winners, mode="clip"))
        last = slice(-BLOCK_STRIDE, None)  # Only these blocks can be incomplete.
        np.copyto(won[last], -np.inf, where=noise.winners[last] >= row.logits.size)
        won += noise.highest
        self._threshold = LEAST
        if count <= won.size:
            highest = won.max() if count == 1 else nth_highest(won, count)
            self._threshold = max(float(highest), LEAST)
        floors = floors_of_blocks(row.peak, row.temperature, self._threshold, noise)
        blocks = (row.maxima >= floors).nonzero()[0]
        return row.members(blocks, floors[blocks])

    def _of_winners(self) -> tuple[float, float]:
        """Return the sum of exp(score), and that of exp(score) score, over the tokens that have the
        highest noise of their blocks but are not scored."""
        scores = self._won.astype(np.float32)
        scores[self._won >= self._threshold] = -np.inf
        np.maximum(scores, NO_WEIGHT, out=scores)
        terms = np.exp(scores)
        return float(terms.sum()), float(np.einsum("i,i", terms, scores))

    def _of_others(self) -> tuple[float, float]:
        """Return what ``_of_winners`` does for the tokens that neither are scored nor have the
        highest noise of their blocks, estimated from a sample of each block."""
        noise, (logs, num_each) = self._noise, self._sample()
        weights = np.exp(logs)
        # Not log1p, which has no fast kernel; 1 is less than the other term.
        factors = np.log(1 + _CUT / noise.least.astype(np.float32)).reshape(len(logs), BLOCK_STRIDE)
        terms = weights.sum(axis=1) * factors
        logs *= weights
        energy = float(np.einsum("tc,tc", logs.sum(axis=1), factors))
        # The mean of -log E, weighted by 1 / E, lies halfway between 0 and that of M.
        energy += float(np.einsum("i,i", terms.ravel(), noise.highest)) / 2
        return num_each * float(terms.sum()), num_each * energy

    def _sample(self) -> tuple[NDArray[np.float32], float]:
        """Return the log-weights of a sample of each block, ``[tiles, places, columns]``, without
        the tokens that are scored; and the number of tokens that each stands for."""
        assert self._scored is not None
        logits, step = self._row.logits, sampled_of(self._row.logits.size)
        # One place for so many places; not the first, since likely tokens often have low ids.
        stride, chosen = step * BLOCK_STRIDE, step // 3 * BLOCK_STRIDE
        whole = logits.size // stride
        rows = logits[: whole * stride].reshape(whole, stride)[:, chosen : chosen + BLOCK_STRIDE]
        last = logits[whole * stride + chosen :][:BLOCK_STRIDE]
        sample = np.full(self._row.maxima.size * BLOCK_IDS // step, -np.inf, np.float32)
        sample[: rows.size].reshape(rows.shape)[:] = rows
        sample[rows.size :][: last.size] = last
        scored = self._scored[(self._scored & stride - BLOCK_STRIDE) == chosen]
        sample[scored // stride * BLOCK_STRIDE + scored % BLOCK_STRIDE] = -np.inf
        np.maximum(self._row.rough_logs(sample, sample), NO_WEIGHT, out=sample)
        num_each = logits.size / (rows.size + last.size) * (1 - 1 / BLOCK_IDS)
        return sample.reshape(-1, BLOCK_IDS // step, BLOCK_STRIDE), num_each


def floors_of_blocks(
    peak: T, temperature: T, threshold: T, noise: BlockNoise
) -> NDArray[np.float64]:
    """Return for each block the logit below which no token of it has a score of ``threshold``; the
    others are numbers, or ``[n, 1]`` for n rows."""
    below_peak = temperature * threshold
    slack = temperature * _SLACK + (abs(peak) + abs(below_peak)) * _RELATIVE_SLACK
    floors: NDArray[np.float64] = (peak + below_peak - slack) - temperature * noise.highest
    return floors

"""The race of a row's tokens: which have the highest log-probability + noise, found exactly without
the noise of most tokens.

A block's highest noise and its likeliest token bound what any of its tokens can reach. The tokens
that have the highest noise of their blocks are scored first. They are a fair sample, so the best of
them come close to the best of all: the k-th best of them is a threshold that about 64 k tokens can
reach, only these are scored, and the k best are among them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.logits_row import LogitsRow, likeliest
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

_LEAST = -1e300
"""A score below that of any token that can be drawn."""

_SAMPLED, _SAMPLED_OF_MANY, _MANY = 8, 16, 1 << 17
"""One of so many tokens stands for the others of its block where scores are estimated: one of more
in vocabularies of ``_MANY`` tokens, in which the sample is large all the same."""

_CUT = math.exp(-np.euler_gamma)
_TINY, _NO_LOG = 1e-30, -750.0


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
        if not 0 < np.count_nonzero(near) <= _FEW_BLOCKS:
            return int(Race(row, seed, position, purpose, 1).token_ids[0])
        able = row.members(np.flatnonzero(near), floor)
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
    present = np.flatnonzero(noise.winners < size)
    won = row.logs[noise.winners[present]] + noise.highest[present]
    threshold = float(won.max(initial=-np.inf))
    bounds = row.logs + np.resize(noise.highest, size)
    slack = _SLACK + abs(threshold) * _RELATIVE_SLACK
    contenders = np.flatnonzero(bounds >= threshold - slack)
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
        without bias, and the entropy is within 0.5.
        """
        weights = np.exp(self._all_scores)
        total = float(weights.sum())
        # Not with BLAS, whose threads stall for milliseconds when the cores are busy.
        energy = float(np.einsum("i,i", weights, np.maximum(self._all_scores, _NO_LOG)))
        if self._row.is_large:
            for terms, scores in self._estimated():
                total += float(terms.sum())
                energy += float(np.einsum("i,i", terms, scores))
        return np.exp(self.scores) / total, math.log(total) - energy / total

    def _contenders(self, count: int) -> NDArray[np.int64]:
        """Return all tokens that can be among the ``count`` best, ascending."""
        row, noise = self._row, self._noise
        self._won = won = row.scaled(row.logits.take(noise.winners, mode="clip"))
        won[noise.winners >= row.logits.size] = -np.inf
        won += noise.highest
        self._threshold = _LEAST
        if count <= won.size:
            highest = won.max() if count == 1 else np.partition(won, won.size - count)[-count]
            self._threshold = max(float(highest), _LEAST)
        below_peak = row.temperature * self._threshold
        slack = row.temperature * _SLACK + (abs(row.peak) + abs(below_peak)) * _RELATIVE_SLACK
        floors = (row.peak + below_peak - slack) - row.temperature * noise.highest
        blocks = np.flatnonzero(row.maxima >= floors)
        return row.members(blocks, floors[blocks])

    def _estimated(self) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Yield exp(score) and the score of the tokens that are not scored: of those with their
        blocks' highest noise one by one, then of the others by block, with a typical score."""
        noise = self._noise
        passed = self._won < self._threshold
        won = np.maximum(self._won, _NO_LOG).astype(np.float32)
        won[~passed] = _NO_LOG
        yield np.exp(won), won
        sample, num_each = self._sample(np.concatenate([self._scored, noise.winners[passed]]))
        rest = sample.sum(axis=1).ravel() * np.float32(num_each) + _TINY
        mean = rest * (self._won.size / self._row.logits.size)
        typical = np.log(mean * sample.max(axis=1).ravel() + _TINY)
        typical += noise.highest.astype(np.float32)
        # Not log1p, which has no fast kernel; 1 is less than the other term.
        yield rest * np.log(1 + _CUT / noise.least.astype(np.float32)), typical / 2

    def _sample(self, left_out: NDArray[np.int64]) -> tuple[NDArray[np.float32], float]:
        """Return the weights of a sample of each block, ``[tiles, places, columns]``, 0 for the
        tokens in ``left_out``; and the number of tokens that each stands for."""
        logits = self._row.logits
        sampled = _SAMPLED if logits.size < _MANY else _SAMPLED_OF_MANY
        step = sampled * BLOCK_STRIDE
        whole, num_places = logits.size // step, BLOCK_IDS // sampled
        rest = logits[whole * step :][:BLOCK_STRIDE]
        num_tiles = self._row.maxima.size // BLOCK_STRIDE
        sample = np.full((num_tiles * num_places, BLOCK_STRIDE), -np.inf, np.float32)
        sample[:whole] = logits[: whole * step].reshape(whole, step)[:, :BLOCK_STRIDE]
        sample.ravel()[whole * BLOCK_STRIDE :][: rest.size] = rest
        # By bits, since these are powers of 2, and division takes four times as long.
        left_out = left_out[left_out & step - 1 < BLOCK_STRIDE]
        sample[left_out >> step.bit_length() - 1, left_out & BLOCK_STRIDE - 1] = -np.inf
        np.exp(self._row.rough_logs(sample, sample), out=sample)
        num_each = logits.size / (whole * BLOCK_STRIDE + rest.size)
        return sample.reshape(num_tiles, num_places, BLOCK_STRIDE), num_each

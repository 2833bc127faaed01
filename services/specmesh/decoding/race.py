"""The race of a row's tokens: which have the highest log-probability + noise, found exactly without
the noise of most tokens.

A block's highest noise and its likeliest token bound what any of its tokens can reach. The tokens
that have the highest noise of their blocks are scored first. They are a fair sample, so the best of
them come close to the best of all: the k-th best of them is a threshold that about 64 k tokens can
reach, only these are scored, and the k best are among them.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.compiled import choice as compiled
from specmesh.decoding.logits_row import LARGE, NO_WEIGHT, LogitsRow, Values
from specmesh.decoding.maxima import epsilon, likeliest, lowest, nth_highest
from specmesh.decoding.noise import (
    BLOCK_IDS,
    BLOCK_STRIDE,
    SPAN,
    TILE_IDS,
    BlockNoise,
    Purpose,
    first_ids,
    gumbel,
    gumbel_below,
    stream_key,
)

_SLACK, _RELATIVE_SLACK = 1e-9, 1e-14
"""More than the rounding errors of scores, and of logits near their largest number."""
_ULPS = 64
"""More than the rounding error of a floor, in units in the last place of its largest term."""

_TERM, _NOISE = -0.511, 0.094
"""Factors that make the estimates of ``Race.softmax`` right on average over the noise of blocks."""

LEAST = -1e300
"""A score below that of any token that can be drawn."""

_FEW_GROUPS = 32
"""The number of groups whose tokens are all scored, if all others are too unlikely."""


def winner(row: LogitsRow, seed: int, position: int, purpose: Purpose) -> int:
    """Return the token of ``row`` with the highest score, log-weight + Gumbel noise; ties go to the
    lower id."""
    if row.token_ids is None and compiled.suits(row.logits):
        key = stream_key(seed, position, purpose)
        token = compiled.find_token(row.logits, row.temperature, key)
        if token is not None:
            return token
    if row.is_large:
        floor = row.peak - row.temperature * SPAN
        # There is none where the row lacks its likeliest tokens.
        if not 0 < row.num_groups_from(floor) <= _FEW_GROUPS:
            return int(Race(row, seed, position, purpose, 1).token_ids[0])
        able = row.reaching(floor)
        if able.size == 1:
            return int(able[0])
        row = row.only(able)
    if row.token_ids is not None:
        scores = gumbel(seed, position, purpose, row.token_ids)
        scores += row.logs
        return int(row.token_ids[scores.argmax()])
    scores = gumbel_below(seed, position, purpose, row.logits.size)
    scores += row.logs
    return int(scores.argmax())


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
        tokens = row.token_ids
        if row.is_large:
            self._noise = BlockNoise(stream_key(*stream), row.num_blocks)
            tokens = self._contenders(count)
            scores = self._noise.at(tokens)
            scores += row.log_weights(tokens)
            # As many tokens as are asked for reach the threshold, and few others.
            able = (scores >= self._threshold).nonzero()[0]
            best = able[(-scores[able]).argsort(kind="stable")[:count]]
        else:
            if tokens is None:
                scores = gumbel_below(*stream, row.logits.size)
            else:
                scores = gumbel(*stream, tokens)
            scores += row.logs
            best = likeliest(scores, count)
            best = best[scores[best] > -np.inf]
        self._all_scores = scores
        self.token_ids = best if tokens is None else tokens[best]
        self.scores = scores[best]

    def softmax(self) -> tuple[NDArray[np.float64], float]:
        """Return the softmax of all tokens' scores, for ``token_ids``, and its entropy in nats.

        In a large vocabulary most tokens have no score. Their terms p / E are exact for those with
        the least E of their block, M, and estimated for the others: p / E has the expectation
        p exp(M) E1(M), about p (-log M - 0.511), and the mean of -log E, weighted by 1 / E, is
        about 0.094 - log M / 2; the sum of these p is estimated from a sample of each block. The
        probabilities are thus mostly within 2 % of the exact ones, without bias, and within 10 %,
        and the entropy is within 0.3.
        """
        scores, terms = self._terms()
        total = float(terms.sum())
        scores *= terms
        energy = float(scores.sum())
        return np.exp(self.scores) / total, math.log(total) - energy / total

    def _contenders(self, count: int) -> NDArray[np.int64]:
        """Return all tokens that can be among the ``count`` best, ascending."""
        row, noise = self._row, self._noise
        self._won = won = row.scaled(row.logits.take(noise.winners, mode="clip"))
        if row.logits.size % TILE_IDS:  # Only the last blocks can be incomplete.
            last = won[-BLOCK_STRIDE:]
            last[noise.winners[-BLOCK_STRIDE:] >= row.logits.size] = -np.inf
        won += noise.highest
        self._threshold = LEAST
        if count <= won.size:
            highest = won.max() if count == 1 else nth_highest(won, count)
            self._threshold = max(float(highest), LEAST)
        self._floors = _floors_of_blocks(row, self._threshold, noise)
        return row.members(self._floors)

    def _terms(self) -> tuple[Values, Values]:
        """Return scores and, for each, a term of the sum of exp(score) over all tokens, or an
        estimate of several."""
        scores = np.maximum(self._all_scores, NO_WEIGHT)
        if not self._row.is_large:
            return scores, np.exp(scores)
        won = np.maximum(self._won, NO_WEIGHT)
        won[self._won >= self._threshold] = NO_WEIGHT  # They are among those that are scored.
        noise = self._noise.highest.astype(np.float32)
        token_ids, num_each = _sampled(self._row.logits.size)
        sample = self._row.logits.take(token_ids)
        sample[sample >= self._floors] = -np.inf  # These are scored, too.
        logs = self._row.clamped_logs(sample)
        scores = np.concatenate([logs.ravel(), won, scores], dtype=np.float32, casting="same_kind")
        terms = np.exp(scores)
        others = scores[: logs.size].reshape(logs.shape), terms[: logs.size].reshape(logs.shape)
        others[0][:] += noise * 0.5 + _NOISE
        others[1][:] *= (noise + _TERM) * num_each
        return scores, terms


@lru_cache(maxsize=16)
def _sampled(num_tokens: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return a sample of each block of a vocabulary, ``[places, blocks]``, and how many tokens
    without the highest noise of their block each stands for, ``[blocks]``."""
    num_places = 8 if num_tokens < LARGE else 2
    firsts = first_ids(-(-num_tokens // TILE_IDS) * BLOCK_STRIDE)
    sizes = np.clip(-((firsts - num_tokens) // BLOCK_STRIDE), 0, BLOCK_IDS)
    # Not the first of their parts, since likely tokens often have low ids.
    places = (3 * np.arange(num_places)[:, None] + 1) * sizes // (3 * num_places)
    token_ids = np.minimum(firsts + places * BLOCK_STRIDE, num_tokens - 1)
    return token_ids, (sizes * ((1 - 1 / BLOCK_IDS) / num_places)).astype(np.float32)


def _floors_of_blocks(row: LogitsRow, threshold: float, noise: BlockNoise) -> Values:
    """Return for each block of ``row`` a finite logit, of its type, below which no token of it has
    a score of ``threshold``."""
    peak, temperature, dtype = row.peak, row.temperature, row.logits.dtype
    below_peak = temperature * threshold
    slack = temperature * _SLACK
    slack += (abs(peak) + abs(below_peak) + temperature * SPAN) * (_ULPS * epsilon(dtype))
    floors = noise.highest.astype(dtype)
    floors *= -temperature
    floors += dtype.type(max(peak + below_peak - slack, lowest(dtype)))
    return floors

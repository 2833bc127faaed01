"""One row of logits at a temperature: its likeliest tokens, its nucleus and its weights, with as
little computed over the whole vocabulary as an exact answer needs.

Where every token counts, as in the sum of all weights, the first answer is in float32 with a stated
error. Only if that error could change a decision, the sum is computed again in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.noise import BLOCK_IDS, BLOCK_STRIDE, TILE_IDS, first_ids

Values = NDArray[np.floating[Any]]

SMALL = 1 << 13
"""The size up to which vocabularies are computed in full in float64: searching costs more."""

_ERROR = 1e-5
"""The largest relative error of ``rough_total``. In units of 2**-24, a weight exp(x) has the error
3 |x| of rounding x and 5 of ``exp``, and numpy's sum by pairs adds less than 63; weights with x
below -32 are together less than 1e-8. That makes at most 164 units, which is less than 1e-5."""

_PIECE = 1 << 16
_BUCKETS = 256
_PLACES = np.arange(BLOCK_IDS)[:, None] * BLOCK_STRIDE
NO_WEIGHT = -750.0
"""A log-weight whose exponential is 0; unlike minus infinity it can be multiplied by that 0."""


class LogitsRow:
    """The tokens that are left of a row, with weights exp((logit - peak) / temperature).

    ``token_ids`` ``[n]``, ascending, have the ``logits`` ``[n]``. It is None for a whole
    vocabulary, in which a logit of minus infinity leaves a token out. Raises
    ``FloatingPointError`` for NaN and if there is no finite ``peak``, the highest logit unless
    another one is given.
    """

    def __init__(
        self,
        logits: Values,
        temperature: float,
        token_ids: NDArray[np.int64] | None = None,
        peak: float | None = None,
    ) -> None:
        self.logits = logits
        self.temperature = temperature
        self.token_ids = token_ids
        self.is_large = token_ids is None and logits.size > SMALL
        """Whether anything that takes all tokens is computed in float32 first."""
        self.maxima = block_maxima(logits) if self.is_large else logits
        """The highest logit of each block of the noise if the vocabulary is large, else all."""
        if peak is None:
            peak = float(self.maxima.max())
            require_peak(peak)
        self.peak = peak

    def likeliest(self, count: int) -> NDArray[np.int64]:
        """Return the ``count`` likeliest tokens, or all if fewer, best first; ties go to the lower
        id."""
        top = self._top(count)
        return self._ids(top[np.argsort(-self.logits[top], kind="stable")])

    def top_k(self, count: int) -> LogitsRow:
        """Return the row with the ``count`` likeliest tokens alone."""
        return self.only(self._top(count))

    def top_p(self, share: float) -> LogitsRow:
        """Return the row with the smallest set of likeliest tokens that has ``share`` of the
        total."""
        for count in (512, self.maxima.size // 2):
            near = self._at_least(self._floor(count))
            ordered, size = self._reach(near, share)
            if size <= near.size:
                break
        else:
            near = self._outline(share)
            ordered, size = self._reach(near, share)
        if size < near.size:
            values, lowest = self.logits[near], ordered[size - 1]
            left_out = np.flatnonzero(values == lowest)[size - int((values > lowest).sum()) :]
            kept = values >= lowest
            kept[left_out] = False
            near = near[kept]
        return self.only(near)

    def min_p(self, share: float) -> LogitsRow:
        """Return the row with the tokens that have at least ``share`` of the likeliest token's
        weight (Nguyen et al. 2024)."""
        return self.only(self._at_least(self.peak + self.temperature * math.log(share)))

    def without(self, token_ids: NDArray[np.int64]) -> LogitsRow:
        """Return the row without ``token_ids``; weights still refer to the same ``peak``."""
        if self.token_ids is None:
            logits = self.logits.copy()
            logits[token_ids] = -np.inf
            return LogitsRow(logits, self.temperature, None, self.peak)
        left = np.isin(self.token_ids, token_ids, invert=True)
        return LogitsRow(self.logits[left], self.temperature, self.token_ids[left], self.peak)

    def members(
        self, blocks: NDArray[np.int64], floors: NDArray[np.float64] | float
    ) -> NDArray[np.int64]:
        """Return the tokens of ``blocks`` ``[n]`` whose finite logits reach ``floors`` ``[n]``,
        ascending; only of a large vocabulary."""
        floors = np.maximum(floors, _lowest(self.logits.dtype))
        ids = first_ids(self.maxima.size)[blocks] + _PLACES
        reached = np.flatnonzero(self.logits.take(ids, mode="clip") >= floors)
        found = np.sort(ids.ravel()[reached])
        return found[: found.searchsorted(self.logits.size)]

    def log_weights(self, token_ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the logarithms of the weights of ``token_ids``, minus infinity if not left."""
        return self.scaled(self._logits_of(token_ids))

    def scaled(self, logits: Values) -> NDArray[np.float64]:
        """Return the logarithms of the weights of tokens with these ``logits``."""
        weights = logits.astype(np.float64)
        weights -= self.peak
        weights /= self.temperature
        return weights

    @cached_property
    def logs(self) -> NDArray[np.float64]:
        """The logarithms of all weights ``[n]``; not of a large vocabulary."""
        return self.scaled(self.logits)

    @cached_property
    def total(self) -> float:
        """The sum of all weights."""
        return self._sum(exact=True)

    @cached_property
    def rough_total(self) -> float:
        """The sum of all weights with a relative error below 1e-5."""
        return self._sum(exact=False) if self.is_large else self.total

    def total_and_entropy(self) -> tuple[float, float]:
        """Return ``rough_total`` and, as rough, the entropy in nats."""
        total = energy = 0.0
        for logs in self._pieces(exact=not self.is_large):
            weights = np.exp(logs)
            total += float(weights.sum())
            # Not with BLAS, whose threads stall for milliseconds when the cores are busy.
            part = float(np.einsum("i,i", weights, logs))
            if math.isnan(part):  # minus infinity times 0
                part = float(np.einsum("i,i", weights, np.maximum(logs, NO_WEIGHT)))
            energy += part
        return total, max(0.0, math.log(total) - energy / total)

    def outweighs(self, token_id: int, share: float) -> bool:
        """Return whether the probability of ``token_id`` is above ``share``."""
        weight = float(np.exp(self.log_weights(np.array([token_id])))[0])
        rough = share * self.rough_total
        if self.is_large and abs(weight - rough) <= rough * _ERROR:
            return weight > share * self.total
        return weight > rough

    def _sum(self, *, exact: bool) -> float:
        return math.fsum(float(np.exp(logs).sum()) for logs in self._pieces(exact=exact))

    def _pieces(self, *, exact: bool) -> Iterator[Values]:
        """Yield the logarithms of all weights, in float64 if ``exact``, in pieces that stay in the
        processor's cache. Each is overwritten by the next."""
        if not self.is_large:
            yield self.logs
            return
        dtype = np.dtype(np.float64) if exact else self.logits.dtype
        piece = np.empty(min(_PIECE, self.logits.size), dtype)
        for start in range(0, self.logits.size, _PIECE):
            logits = self.logits[start : start + _PIECE]
            yield self.rough_logs(logits, piece[: logits.size])

    def rough_logs(self, logits: Values, out: Values) -> Values:
        """Return the logarithms of the weights of tokens with these ``logits``, as exact as the
        type of ``out``, to which they are written."""
        np.subtract(logits, self.peak, out=out, dtype=out.dtype)
        scale = min(1 / self.temperature, float(np.finfo(out.dtype).max))
        with np.errstate(over="ignore"):
            return np.multiply(out, scale, out=out)

    def _floor(self, count: int) -> float:
        """Return a logit that at least ``count`` tokens reach, unless there are fewer."""
        if count >= self.maxima.size:
            return -np.inf
        return float(np.partition(self.maxima, self.maxima.size - count)[-count])

    def _top(self, count: int) -> NDArray[np.int64]:
        """Return the indices of the ``count`` likeliest tokens, or all if fewer, ascending."""
        near = self._at_least(self._floor(count))
        if near.size <= count:
            return near
        return near[np.sort(likeliest(self.logits[near], count))]

    def only(self, indices: NDArray[np.int64]) -> LogitsRow:
        """Return the row with the tokens at ``indices`` alone, ascending."""
        return LogitsRow(self.logits[indices], self.temperature, self._ids(indices), self.peak)

    def _ids(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        return indices if self.token_ids is None else self.token_ids[indices]

    def _at_least(self, floor: float) -> NDArray[np.int64]:
        """Return the indices of the finite logits that reach ``floor``."""
        floor = max(floor, _lowest(self.logits.dtype))
        if self.is_large:
            blocks = np.flatnonzero(self.maxima >= floor)
            if 8 * blocks.size < self.maxima.size:
                return self.members(blocks, floor)
        return np.flatnonzero(self.logits >= floor)

    def _outline(self, share: float) -> NDArray[np.int64]:
        """Return the indices of a set of likeliest tokens that holds the nucleus, and little
        more."""
        # Tokens below this floor have less than half of what the nucleus may leave out.
        least = math.log((1 - share) / 2 * self.rough_total / self.logits.size)
        near = self._at_least(self.peak + self.temperature * least)
        logs = self.logits[near]
        self.rough_logs(logs, logs)
        buckets = (logs * (_BUCKETS / least)).astype(np.intp)
        mass = np.bincount(buckets, np.exp(logs)).cumsum()
        return near[buckets <= mass.searchsorted(share * self.rough_total * (1 + 3 * _ERROR))]

    def _reach(self, near: NDArray[np.int64], share: float) -> tuple[Values, int]:
        """Return the logits of ``near``, best first, and how many of them have ``share`` of the
        total; one more than all of them if they have less."""
        ordered = np.sort(self.logits[near])[::-1]
        mass = np.exp(self.scaled(ordered)).cumsum()
        goal = share * self.rough_total
        size, most = mass.searchsorted([goal * (1 - _ERROR), goal * (1 + _ERROR)])
        if size != most:
            size = mass.searchsorted(share * self.total)
        return ordered, int(size) + 1

    def _logits_of(self, token_ids: NDArray[np.int64]) -> Values:
        if self.token_ids is None:
            return self.logits[token_ids]
        if not self.logits.size:
            return np.full(token_ids.size, -np.inf)
        indices = self.token_ids.searchsorted(token_ids).clip(max=self.logits.size - 1)
        found = self.token_ids[indices] == token_ids
        logits: Values = np.where(found, self.logits[indices], -np.inf)
        return logits


def likeliest(scores: Values, count: int) -> NDArray[np.int64]:
    """Return the indices of the ``count`` highest ``scores`` (all, if fewer), highest first.

    Ties go to the lower index.
    """
    if count == 1 < scores.size:
        return np.array([scores.argmax()])
    if count < scores.size:
        lowest = np.partition(scores, scores.size - count)[scores.size - count]
        near = np.flatnonzero(scores >= lowest)
        return near[np.argsort(-scores[near], kind="stable")[:count]]
    return np.argsort(-scores, kind="stable")


def block_maxima(logits: Values) -> Values:
    """Return the highest of ``logits`` ``[vocab]`` in each block of the noise."""
    num_tiles, whole = -(-logits.size // TILE_IDS), logits.size - logits.size % TILE_IDS
    maxima = np.empty((num_tiles, BLOCK_STRIDE), logits.dtype)
    tiles = logits[:whole].reshape(-1, BLOCK_IDS, BLOCK_STRIDE)
    np.maximum.reduce(tiles, axis=1, out=maxima[: len(tiles)])
    if whole != logits.size:
        num_rows = (logits.size - whole) // BLOCK_STRIDE
        rows, last = np.split(logits[whole:], [num_rows * BLOCK_STRIDE])
        rest = rows.reshape(num_rows, BLOCK_STRIDE)
        np.maximum.reduce(rest, axis=0, out=maxima[-1], initial=-np.inf)
        np.maximum(maxima[-1, : last.size], last, out=maxima[-1, : last.size])
    return maxima.ravel()


@lru_cache
def _lowest(dtype: np.dtype[Any]) -> float:
    """Return the lowest finite number of ``dtype``; numpy takes a microsecond to find it."""
    return float(np.finfo(dtype).min)


def require_peak(peak: float | np.floating[Any]) -> None:
    """Raise ``FloatingPointError`` unless ``peak``, the highest logit, is finite.

    Otherwise the argmax of overflowed logits would look like a choice of token 0.
    """
    if not math.isfinite(peak):
        raise FloatingPointError(f"logits have no finite maximum: {peak}")

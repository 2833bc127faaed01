"""One row of logits at a temperature: its likeliest tokens and its weights, with as little computed
over the whole vocabulary as an exact answer needs.

Where every token counts, as in the sum of all weights, the first answer is in float32 with a stated
error. Only if that error could change a decision, the sum is computed again in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.maxima import FEW, Maxima, likeliest, lowest, nth_highest

Values = NDArray[np.floating[Any]]

SMALL = 1 << 13
"""The size up to which vocabularies are computed in full in float64: searching costs more."""

LARGE = 1 << 17
"""The size from which on a smaller share of a vocabulary is sampled: the sample is large all the
same."""

ROUGH = 1e-5
"""The largest relative error of a sum of weights in float32. In units of 2**-24, a weight exp(x)
has the error 3 |x| of rounding x and 5 of ``exp``, and numpy's sum by pairs adds less than 63;
weights with x below -32 are together less than 1e-8. That makes at most 164 units, which is less
than 1e-5."""

_PIECE = 1 << 16
_RUN = 16
"""The number of neighbours in a sample, which share a line of the cache."""
NO_WEIGHT = -750.0
"""A log-weight whose exponential is 0; unlike minus infinity it can be multiplied by that 0."""


class LogitsRow:
    """The tokens that are left of a row, with weights exp((logit - peak) / temperature).

    ``token_ids`` ``[n]``, ascending, have the ``logits`` ``[n]``. It is None for a whole
    vocabulary, in which a logit of minus infinity leaves a token out. ``peak`` is the highest logit
    unless another one is given.
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
        """True if anything that takes all tokens is computed in float32 first."""
        self._peak = peak
        self._maxima: Maxima | None = None
        self._logs: NDArray[np.float64] | None = None

    # Cached by hand: a cached_property takes a lock, which costs more than some rows do.
    @property
    def _parts(self) -> Maxima | None:
        if self._maxima is None and self.is_large:
            self._maxima = Maxima(self.logits)
        return self._maxima

    @property
    def peak(self) -> float:
        """The logit that has the weight 1. Raises ``FloatingPointError`` for NaN and if there is no
        finite one."""
        if self._peak is None:
            maxima = self.logits if self._parts is None else self._parts.groups
            peak = float(maxima.max())
            require_peak(peak)
            self._peak = peak
        return self._peak

    @property
    def num_blocks(self) -> int:
        """The number of blocks of the noise in a large vocabulary."""
        assert self._parts is not None
        return self._parts.num_blocks

    def num_groups_from(self, floor: float) -> int:
        """Return the number of groups of 8 tokens in which one reaches ``floor``; only of a large
        vocabulary."""
        assert self._parts is not None
        return self._parts.num_groups_from(floor)

    def likeliest(self, count: int) -> NDArray[np.int64]:
        """Return the ``count`` likeliest tokens, or all if fewer, best first; ties go to the lower
        id."""
        near = self.likely(count) if self._parts is None else self._parts.highest(count)
        return self._ids(self._best_of(near, count))

    def likeliest_with_weights(
        self, count: int, near: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return what ``likeliest`` does, and their weights; sooner if ``near`` are the indices of
        the ``count`` likeliest tokens and of some more."""
        best = self._best_of(self.likely(count) if near is None else near, count)
        return self._ids(best), np.exp(self.scaled(self.logits[best]))

    def top_k(self, count: int) -> LogitsRow:
        """Return the row with the ``count`` likeliest tokens alone."""
        near = self.likely(count)
        if near.size > count:
            near = self._best_of(near, count)
            near.sort()
        return self.only(near)

    def min_p(self, share: float) -> LogitsRow:
        """Return the row with the tokens that have at least ``share`` of the likeliest token's
        weight (Nguyen et al. 2024)."""
        return self.only(self.reaching(self.peak + self.temperature * math.log(share)))

    def without(self, token_ids: NDArray[np.int64]) -> LogitsRow:
        """Return the row without ``token_ids``; weights still refer to the same ``peak``."""
        if self.token_ids is None:
            logits = self.logits.copy()
            logits[token_ids] = -np.inf
            return LogitsRow(logits, self.temperature, None, self.peak)
        left = np.isin(self.token_ids, token_ids, invert=True)
        return LogitsRow(self.logits[left], self.temperature, self.token_ids[left], self.peak)

    def members(self, floors: Values) -> NDArray[np.int64]:
        """Return the tokens whose logits reach the floor of their block, ascending; ``floors``
        ``[blocks]`` are finite and of the logits' type. Only of a large vocabulary."""
        assert self._parts is not None
        return self._parts.tokens_of_blocks(floors)

    def log_weights(self, token_ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the logarithms of the weights of ``token_ids``, minus infinity if not left."""
        return self.scaled(self._logits_of(token_ids))

    def scaled(self, logits: Values) -> NDArray[np.float64]:
        """Return the logarithms of the weights of tokens with these ``logits``."""
        weights = logits.astype(np.float64)
        weights -= self.peak
        weights /= self.temperature
        return weights

    @property
    def logs(self) -> NDArray[np.float64]:
        """The logarithms of all weights ``[n]``; not of a large vocabulary."""
        if self._logs is None:
            self._logs = self.scaled(self.logits)
        return self._logs

    @cached_property
    def total(self) -> float:
        """The sum of all weights."""
        return self._sum(exact=True)

    @cached_property
    def rough_total(self) -> float:
        """The sum of all weights with a relative error below 1e-5."""
        return self._sum(exact=False) if self.is_large else self.total

    def total_beyond(self, near: NDArray[np.int64]) -> float:
        """Return the sum of the weights of all tokens of a large vocabulary but those at the
        indices ``near``, with a relative error below ``ROUGH``."""
        logs = self.rough_logs(self.logits, np.empty_like(self.logits))
        logs[near] = -np.inf
        return float(np.exp(logs, out=logs).sum())

    def estimate_beyond(self, floor: float) -> float:
        """Return an estimate of the sum of the weights of all tokens of a large vocabulary whose
        logits are below ``floor``, from a sample."""
        logs, num_each = self._sample(floor)
        return num_each * float(np.exp(logs, out=logs).sum())

    def least_total(self) -> float:
        """Return a lower bound of ``total``: that of the likeliest tokens of all parts of a large
        vocabulary, mostly within a few percent."""
        assert self._parts is not None
        maxima = self._parts.groups
        logs = self.rough_logs(maxima, np.empty_like(maxima))
        return float(np.exp(logs, out=logs).sum()) * (1 - 2 * ROUGH)

    def estimate(self, near: NDArray[np.int64]) -> tuple[float, float]:
        """Return the sum of all weights of a large vocabulary and the entropy in nats.

        What the tokens at the indices ``near``, all those that reach some logit, add to them is
        exact, and what the others add is estimated from a sample. With the likeliest 256 tokens the
        sum is mostly within 3 % and always within 10 %, and the entropy within 0.2.
        """
        near_logits = self.logits[near]
        logs, num_each = self._sample(float(near_logits.min()))
        weights = np.exp(logs)
        near_logs = self.scaled(near_logits)
        near_weights = np.exp(near_logs)
        total = float(near_weights.sum()) + num_each * float(weights.sum())
        # Not with BLAS, whose threads stall for milliseconds when the cores are busy.
        energy = float(np.einsum("i,i", near_weights, near_logs))
        logs *= weights
        energy += num_each * float(logs.sum())
        return total, max(0.0, math.log(total) - energy / total)

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
        if self.is_large and abs(weight - rough) <= rough * ROUGH:
            return weight > share * self.total
        return weight > rough

    def _sample(self, floor: float) -> tuple[Values, float]:
        """Return the log-weights of a sample of the tokens whose logits are below ``floor``, and
        how many of these each stands for."""
        step = 8 if self.logits.size < LARGE else 16
        part, chosen = step * _RUN, step // 2 * _RUN
        parts = self.logits[: self.logits.size // part * part].reshape(-1, part)
        sample = parts[:, chosen : chosen + _RUN].copy()
        sample[sample >= floor] = -np.inf
        return self.clamped_logs(sample), self.logits.size / sample.size

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
        scale = min(1 / self.temperature, -lowest(out.dtype))
        with np.errstate(over="ignore"):
            return np.multiply(out, scale, out=out)

    def clamped_logs(self, logits: Values) -> Values:
        """Return ``rough_logs`` of ``logits``, which are overwritten, none below ``NO_WEIGHT``."""
        logits -= self.peak
        np.maximum(logits, NO_WEIGHT * self.temperature, out=logits)
        logits *= min(1 / self.temperature, -lowest(logits.dtype))
        return logits

    def likely(self, count: int) -> NDArray[np.int64]:
        """Return the indices of the ``count`` likeliest tokens and of some more, ascending."""
        if self._parts is not None:
            return self._parts.tokens_from(self._parts.floor_of(count))
        if self.token_ids is not None and self.logits.size <= FEW:
            return np.arange(self.logits.size)
        count = min(count, self.logits.size)
        return self.reaching(nth_highest(self.logits, count))

    def only(self, indices: NDArray[np.int64]) -> LogitsRow:
        """Return the row with the tokens at ``indices`` alone, ascending."""
        return LogitsRow(self.logits[indices], self.temperature, self._ids(indices), self.peak)

    def _best_of(self, near: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """Return the indices of the ``count`` likeliest tokens of those at ``near``."""
        return near[likeliest(self.logits[near], count)]

    def _ids(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        return indices if self.token_ids is None else self.token_ids[indices]

    def reaching(self, floor: float) -> NDArray[np.int64]:
        """Return the indices of the finite logits that reach ``floor``."""
        if self._parts is not None:
            return self._parts.tokens_from(floor)
        return (self.logits >= max(floor, lowest(self.logits.dtype))).nonzero()[0]

    def _logits_of(self, token_ids: NDArray[np.int64]) -> Values:
        if self.token_ids is None:
            return self.logits[token_ids]
        if not self.logits.size:
            return np.full(token_ids.size, -np.inf)
        indices = self.token_ids.searchsorted(token_ids).clip(max=self.logits.size - 1)
        found = self.token_ids[indices] == token_ids
        logits: Values = np.where(found, self.logits[indices], -np.inf)
        return logits


def require_peak(peak: float | np.floating[Any]) -> None:
    """Raise ``FloatingPointError`` unless ``peak``, the highest logit, is finite.

    Otherwise the argmax of overflowed logits would look like a choice of token 0.
    """
    if not math.isfinite(peak):
        raise FloatingPointError(f"the model's logits have no finite maximum: {peak}")

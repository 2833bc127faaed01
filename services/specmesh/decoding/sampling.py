"""The way from logits to tokens: warping, and the choice of a token in the exact modes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.noise import Purpose, gumbel

MAX_TEMPERATURE = 100.0


class AcceptanceMode(Enum):
    """The meanings of "lossless" for a request."""

    GREEDY = auto()
    """The tokens are exactly those of the target's own greedy decoding."""
    COUPLED = auto()
    """The tokens are exactly those that the target alone draws with the seed."""
    REJECTION = auto()
    """The text equals the target's in distribution, with the highest acceptance (Leviathan et
    al.)."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The parameters by which tokens are chosen. Wrong values raise ``InvalidField``.

    ``temperature`` [0, 100] divides the logits; ``top_k`` keeps the k likeliest tokens, 0 keeps
    all; ``top_p`` (0, 1] keeps the smallest set of likeliest tokens with at least this probability;
    ``seed`` is any uint64. ``mode`` is GREEDY exactly when ``temperature`` is 0: the caller may set
    either. Temperature and top_p are rounded to float32, as on the wire, so that a request means
    the same in process and across the mesh.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    mode: AcceptanceMode = AcceptanceMode.COUPLED

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= MAX_TEMPERATURE:
            raise InvalidField("temperature", f"must be in [0, {MAX_TEMPERATURE:g}]")
        if self.top_k < 0:
            raise InvalidField("top_k", "must not be negative")
        if not 0 < np.float32(self.top_p) <= 1:
            raise InvalidField("top_p", "must be in (0, 1]")
        if not 0 <= self.seed < 1 << 64:
            raise InvalidField("seed", "must fit in 64 bits without a sign")
        greedy = self.mode is AcceptanceMode.GREEDY
        temperature = 0.0 if greedy else float(np.float32(self.temperature))
        object.__setattr__(self, "temperature", temperature)
        object.__setattr__(self, "top_p", float(np.float32(self.top_p)))
        if temperature == 0:
            object.__setattr__(self, "mode", AcceptanceMode.GREEDY)


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """A probability distribution over the vocabulary; tokens not listed have probability 0.

    ``token_ids`` ``[n]`` are distinct, ``probabilities`` ``[n]`` above 0 with sum 1.
    """

    token_ids: NDArray[np.int64]
    probabilities: NDArray[np.float64]


def warp(logits: NDArray[np.floating[Any]], sampling: Sampling) -> Distribution:
    """Return the distribution that ``sampling`` makes of ``logits`` ``[vocab]``, ids ascending.

    It applies temperature, then top-k, then top-p to the tokens that top-k keeps, as in Hugging
    Face transformers; ties go to the lower id. At the boundary of top-k or top-p the last bit of a
    logit decides which tokens are kept. Temperature 0 puts all mass on the likeliest token. Raises
    ``FloatingPointError`` if the logits hold NaN or no finite maximum.
    """
    if sampling.mode is AcceptanceMode.GREEDY:
        return Distribution(np.array([_likeliest_one(logits)]), np.ones(1))
    token_ids = _support(logits, sampling)
    probabilities = np.exp(_log_weights(logits, token_ids, sampling.temperature))
    probabilities /= probabilities.sum()
    if not probabilities.all():  # far below the peak, exp underflows
        token_ids, probabilities = token_ids[probabilities > 0], probabilities[probabilities > 0]
    return Distribution(token_ids, probabilities)


def choose(logits: NDArray[np.floating[Any]], sampling: Sampling, position: int) -> int:
    """Return the target's token at ``position``, from its ``logits`` ``[vocab]``.

    Greedy: the likeliest, the lowest id on ties. Coupled: the argmax of log p + Gumbel noise over
    the warped distribution p. A rounding error in the logits changes the token if it reorders
    scores, and also if it moves a token across the boundary of top-k or top-p, however far apart
    the scores are. docs/measurements.md has the rates.

    Raises ``ValueError`` in rejection mode, where the token depends on the draft, and
    ``FloatingPointError`` as ``warp`` does.
    """
    if sampling.mode is AcceptanceMode.REJECTION:
        raise ValueError("in rejection mode the token depends on the draft")
    if sampling.mode is AcceptanceMode.GREEDY:
        return _likeliest_one(logits)
    token_ids, scores = coupled_scores(logits, sampling, position)
    return int(token_ids[scores.argmax()])


def coupled_scores(
    logits: NDArray[np.floating[Any]], sampling: Sampling, position: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return log-probability + noise of every token that warping keeps, ids ascending.

    Target and drafter use the same noise. The scores omit a constant, which does not affect the
    choice of a token.
    """
    token_ids = _support(logits, sampling)
    scores = _log_weights(logits, token_ids, sampling.temperature)
    scores += gumbel(sampling.seed, position, Purpose.COUPLED, token_ids)
    return token_ids, scores


def _support(logits: NDArray[np.floating[Any]], sampling: Sampling) -> NDArray[np.int64]:
    """Return the tokens that top-k and top-p keep, ascending; never one with logit -inf."""
    require_peak(logits.max())
    if 0 < sampling.top_k < logits.size:
        token_ids = np.sort(likeliest(logits, sampling.top_k))
        token_ids = token_ids[logits[token_ids] > -np.inf]
    else:
        token_ids = np.flatnonzero(logits > -np.inf)
    if sampling.top_p < 1:
        weights = _log_weights(logits, token_ids, sampling.temperature)
        token_ids = np.sort(token_ids[_nucleus(weights, sampling.top_p)])
    return token_ids


def likeliest(scores: NDArray[np.floating[Any]], count: int) -> NDArray[np.int64]:
    """Return the indices of the ``count`` highest ``scores`` (all, if fewer), highest first.

    Ties go to the lower index.
    """
    if count >= scores.size:
        return np.argsort(-scores, kind="stable")
    if count == 1:
        return np.array([scores.argmax()])
    lowest = np.partition(scores, scores.size - count)[scores.size - count]
    above = np.flatnonzero(scores > lowest)
    tied = np.flatnonzero(scores == lowest)[: count - above.size]
    return np.concatenate([above[np.argsort(-scores[above], kind="stable")], tied])


def _nucleus(log_weights: NDArray[np.float64], top_p: float) -> NDArray[np.int64]:
    """Return the indices of the smallest set of likeliest tokens with at least ``top_p`` in sum."""
    probabilities = np.exp(log_weights)
    probabilities /= probabilities.sum()
    size = 64  # usually enough: sorting the whole vocabulary is the slow part
    while True:
        order = likeliest(log_weights, size)
        mass = probabilities[order].cumsum()
        if mass[-1] >= top_p or order.size == log_weights.size:
            return order[: int(mass.searchsorted(top_p)) + 1]
        size *= 8


def _log_weights(
    logits: NDArray[np.floating[Any]], token_ids: NDArray[np.int64], temperature: float
) -> NDArray[np.float64]:
    """Return log-probabilities up to a constant, the likeliest at 0, in float64."""
    kept = logits if token_ids.size == logits.size else logits[token_ids]
    weights = kept.astype(np.float64)
    weights -= weights.max()
    weights /= temperature
    return weights


def _likeliest_one(logits: NDArray[np.floating[Any]]) -> int:
    token_id = int(logits.argmax())
    require_peak(logits[token_id])
    return token_id


def require_peak(peak: np.floating[Any]) -> None:
    """Raise ``FloatingPointError`` unless ``peak``, the highest logit, is finite.

    Otherwise the argmax of overflowed logits would look like a choice of token 0.
    """
    if not math.isfinite(peak):
        raise FloatingPointError(f"logits have no finite maximum: {peak}")

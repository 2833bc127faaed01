"""The way from logits to tokens: warping, and the choice of a token in the exact modes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.logits_row import LogitsRow, require_peak
from specmesh.decoding.noise import Purpose
from specmesh.decoding.race import Race, winner

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
    row = kept(logits, sampling)
    token_ids = np.arange(row.logits.size) if row.token_ids is None else row.token_ids
    weights = np.exp(row.scaled(row.logits))
    token_ids, weights = token_ids[weights > 0], weights[weights > 0]  # exp may underflow
    return Distribution(token_ids, weights / weights.sum())


def kept(logits: NDArray[np.floating[Any]], sampling: Sampling) -> LogitsRow:
    """Return the tokens of ``logits`` ``[vocab]`` that ``warp`` keeps, above temperature 0."""
    row = LogitsRow(logits, sampling.temperature)
    if 0 < sampling.top_k < logits.size:
        row = row.top_k(sampling.top_k)
    if sampling.top_p < 1:
        row = row.top_p(sampling.top_p)
    return row


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
    return winner(kept(logits, sampling), sampling.seed, position, Purpose.COUPLED)


def coupled(
    logits: NDArray[np.floating[Any]], sampling: Sampling, position: int, count: int
) -> Race:
    """Return the ``count`` tokens with the highest log-probability + noise of those that ``warp``
    keeps. Target and drafter use the same noise."""
    return Race(kept(logits, sampling), sampling.seed, position, Purpose.COUPLED, count)


def _likeliest_one(logits: NDArray[np.floating[Any]]) -> int:
    token_id = int(logits.argmax())
    require_peak(logits[token_id])
    return token_id

"""The way from logits to tokens: warping, and the choice of a token in the exact modes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.grammar import Grammar
from specmesh.decoding.logits_row import LogitsRow, require_peak
from specmesh.decoding.noise import Purpose
from specmesh.decoding.processing.nucleus import is_surely_in_nucleus, nucleus
from specmesh.decoding.processing.typical import most_typical
from specmesh.decoding.race import Race, winner

MAX_TEMPERATURE = 100.0
MAX_LOGIT_BIAS = 100.0
MAX_LISTED_TOKENS = 1024
MAX_BANNED_SEQUENCES = 256
"""Bound the work for each position and the size of each call."""
MAX_BANNED_SEQUENCE = 32
"""Most tokens of a banned sequence."""


@dataclass(frozen=True, slots=True)
class _Range:
    least: float
    most: float
    neutral: float
    excludes_least: bool = False

    def holds(self, value: float) -> bool:
        return float(np.float32(self.least)) <= value <= self.most and not (
            self.excludes_least and value == self.least
        )

    def __str__(self) -> str:
        return f"{'(' if self.excludes_least else '['}{self.least:g}, {self.most:g}]"


_RANGES: Mapping[str, _Range] = {
    "temperature": _Range(0, MAX_TEMPERATURE, 1),
    "top_p": _Range(0, 1, 1, excludes_least=True),
    "min_p": _Range(0, 1, 0),
    "typical_p": _Range(0, 1, 1, excludes_least=True),
    "repetition_penalty": _Range(0.01, 100, 1),
    "presence_penalty": _Range(-2, 2, 0),
    "frequency_penalty": _Range(-2, 2, 0),
}
_LATER_CUTS: Mapping[str, Callable[[LogitsRow, float], LogitsRow]] = {
    "min_p": LogitsRow.min_p,
    "typical_p": most_typical,
}
"""The parameters that leave out tokens after top-k and top-p, in the order in which they do."""
MOST_ENTRIES: Mapping[str, int] = {
    "logit_bias": MAX_LISTED_TOKENS,
    "allowed_token_ids": MAX_LISTED_TOKENS,
    "banned_token_ids": MAX_LISTED_TOKENS,
    "banned_sequences": MAX_BANNED_SEQUENCES,
    "end_token_ids": MAX_LISTED_TOKENS,
}
"""Most entries of each parameter that has several."""


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

    Each is that of ``SamplingParameters`` in sampling.proto. ``mode`` is GREEDY exactly when
    ``temperature`` is 0: the caller may set either. Numbers are rounded to float32, as on the wire,
    so that a request means the same in process and across the mesh.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    mode: AcceptanceMode = AcceptanceMode.COUPLED
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed_token_ids: tuple[int, ...] = ()
    banned_token_ids: tuple[int, ...] = ()
    banned_sequences: tuple[tuple[int, ...], ...] = ()
    min_tokens: int = 0
    end_token_ids: tuple[int, ...] = ()
    num_prompt_tokens: int = 0
    grammar: Grammar | None = None

    def __post_init__(self) -> None:
        for name, allowed in _RANGES.items():
            if getattr(self, name) == allowed.neutral:
                continue
            value = float(np.float32(getattr(self, name)))
            if not allowed.holds(value):
                raise InvalidField(name, f"must be in {allowed}")
            object.__setattr__(self, name, value)
        if self.top_k < 0:
            raise InvalidField("top_k", "must not be negative")
        if not 0 <= self.seed < 1 << 64:
            raise InvalidField("seed", "must fit in 64 bits without a sign")
        self._check_entries()
        if self.mode is AcceptanceMode.GREEDY:
            object.__setattr__(self, "temperature", 0.0)
        elif self.temperature == 0:
            object.__setattr__(self, "mode", AcceptanceMode.GREEDY)

    def _check_entries(self) -> None:
        for name, most in MOST_ENTRIES.items():
            if len(getattr(self, name)) > most:
                raise InvalidField(name, f"has more than {most} entries")
        for at, sequence in enumerate(self.banned_sequences):
            if not 1 <= len(sequence) <= MAX_BANNED_SEQUENCE:
                raise InvalidField(
                    f"banned_sequences[{at}].token_ids",
                    f"must hold 1 to {MAX_BANNED_SEQUENCE} tokens",
                )
        for token, bias in self.logit_bias:
            if not abs(bias) <= MAX_LOGIT_BIAS:
                reason = f"must be in [-{MAX_LOGIT_BIAS:g}, {MAX_LOGIT_BIAS:g}]"
                raise InvalidField(f"logit_bias[{token}]", reason)

    @property
    def penalises(self) -> bool:
        """True if tokens that have occurred before get other logits."""
        penalties = (self.repetition_penalty, self.presence_penalty, self.frequency_penalty)
        return penalties != (1, 0, 0)

    @property
    def changes_logits(self) -> bool:
        """True if logits are changed before they are warped."""
        return bool(
            self.penalises
            or self.logit_bias
            or self.allowed_token_ids
            or self.banned_token_ids
            or self.banned_sequences
            or self.min_tokens
            or self.grammar
        )

    @property
    def cuts_at_most_nucleus(self) -> bool:
        """True if no parameter but ``top_p`` leaves out tokens when logits are warped."""
        return not self.top_k and not self._cuts_later

    @property
    def without_processing(self) -> Sampling:
        """The parameters that processes without ``MODEL_FEATURE_LOGIT_PROCESSING`` know."""
        return Sampling(self.temperature, self.top_k, self.top_p, self.seed, self.mode)

    @property
    def needs_processing(self) -> bool:
        """True if a parameter is set that came with ``MODEL_FEATURE_LOGIT_PROCESSING``."""
        return self.changes_logits or self._cuts_later

    @property
    def _cuts_later(self) -> bool:
        return any(getattr(self, name) != _RANGES[name].neutral for name in _LATER_CUTS)


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """A probability distribution over the vocabulary; tokens not listed have probability 0.

    ``token_ids`` ``[n]`` are distinct, ``probabilities`` ``[n]`` above 0 with sum 1.
    """

    token_ids: NDArray[np.int64]
    probabilities: NDArray[np.float64]


def warp(logits: NDArray[np.floating[Any]], sampling: Sampling) -> Distribution:
    """Return the distribution that ``sampling`` makes of ``logits`` ``[vocab]``, ids ascending.

    It applies temperature, then top-k, top-p, min-p and typical-p, each to the tokens that are
    left, as in Hugging Face transformers; ties go to the lower id. At the boundaries the last bit
    of a logit decides which tokens are kept. Temperature 0 puts all mass on the likeliest token.

    Raises ``FloatingPointError`` if the logits hold NaN or no finite maximum.
    """
    if sampling.mode is AcceptanceMode.GREEDY:
        return Distribution(np.array([_likeliest_one(logits)]), np.ones(1))
    row = kept(logits, sampling)
    token_ids = np.arange(row.logits.size) if row.token_ids is None else row.token_ids
    weights = np.exp(row.scaled(row.logits))
    token_ids, weights = token_ids[weights > 0], weights[weights > 0]  # exp may underflow
    return Distribution(token_ids, weights / weights.sum())


def kept(
    logits: NDArray[np.floating[Any]], sampling: Sampling, *, guessed: bool = False
) -> LogitsRow:
    """Return the tokens of ``logits`` ``[vocab]`` that ``warp`` keeps, above temperature 0.

    If ``guessed``, the nucleus of a large vocabulary is a guess (see ``nucleus``).
    """
    return _cut(LogitsRow(logits, sampling.temperature), sampling, guessed=guessed)


def _cut(row: LogitsRow, sampling: Sampling, *, guessed: bool = False) -> LogitsRow:
    if 0 < sampling.top_k < row.logits.size:
        row = row.top_k(sampling.top_k)
    if sampling.top_p < 1:
        row = nucleus(row, sampling.top_p, guessed=guessed)
    for name, cut in _LATER_CUTS.items():
        if (value := getattr(sampling, name)) != _RANGES[name].neutral:
            row = cut(row, value)
    return row


def choose(
    logits: NDArray[np.floating[Any]], sampling: Sampling, position: int, best: int | None = None
) -> int:
    """Return the target's token at ``position``, from its ``logits`` ``[vocab]``. ``best`` is what
    ``OwnTokens`` has found there in coupled mode, if anything.

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
    row, stream = LogitsRow(logits, sampling.temperature), (sampling.seed, position)
    if row.is_large and sampling.top_p < 1 and sampling.cuts_at_most_nucleus:
        # The best of all tokens is the best of those that are left if it is among them.
        token = winner(row, *stream, Purpose.COUPLED) if best is None else best
        if is_surely_in_nucleus(row, token, sampling.top_p):
            return token
    return winner(_cut(row, sampling), *stream, Purpose.COUPLED)


def coupled(
    logits: NDArray[np.floating[Any]],
    sampling: Sampling,
    position: int,
    count: int,
    *,
    guessed: bool = False,
) -> Race:
    """Return the ``count`` tokens with the highest log-probability + noise of those that ``kept``
    keeps. Target and drafter use the same noise."""
    row = kept(logits, sampling, guessed=guessed)
    return Race(row, sampling.seed, position, Purpose.COUPLED, count)


def _likeliest_one(logits: NDArray[np.floating[Any]]) -> int:
    token_id = int(logits.argmax())
    require_peak(logits[token_id])
    return token_id

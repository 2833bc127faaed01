"""The drafter's choice of tokens, made so that the target accepts many of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.logits_row import LogitsRow
from specmesh.decoding.maxima import likeliest
from specmesh.decoding.noise import Purpose, gumbel
from specmesh.decoding.predict.platt import Platt
from specmesh.decoding.sampling import AcceptanceMode, Distribution, Sampling, choose, coupled, kept

MAX_CANDIDATES = 64
"""The most tokens in a draft distribution, which is sent with every verification."""

UNSEEN = 1e-3
"""The confidence in a token that is not among the drafter's choices."""

DRAWN = Platt(slope=0.45, bias=0.5)
"""A map from a drawn token's probability to that of its acceptance, as measured on held-out prompts
with the shipped pair at temperature 0.8, where tokens drawn with a probability below 0.05 are
accepted in 37 of 100 cases, from 0.2 to 0.5 in 55, and above 0.95 in 97."""

_ESTIMATED = 1 << 16
"""The size from which on a vocabulary's sums for choices are estimated: exact ones take longer."""
_COUNTED = 256
"""The number of likeliest tokens that have exact weights in estimates."""

_STEPS = 1 << 24
_LEAST = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True, slots=True)
class TopK:
    """The likeliest tokens at a position, best first: a summary, not a distribution.

    ``token_ids`` ``[n]`` are distinct; ``probabilities`` ``[n]``, in (0, 1] and never rising, lack
    the mass of the tokens not listed. They are sent as float32, so smaller ones are raised to its
    least normal number. ``entropy``, in nats, is that of the whole distribution, including tokens
    not listed. In large vocabularies both are estimates: the probabilities are mostly within a few
    percent, and the entropy is within 0.3.
    """

    token_ids: tuple[int, ...]
    probabilities: tuple[float, ...]
    entropy: float

    def first(self, count: int) -> TopK:
        """Return the ``count`` likeliest of these tokens."""
        return TopK(self.token_ids[:count], self.probabilities[:count], self.entropy)


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """The draft tokens for one position: ``children``, distinct, in the order to try them.

    ``distribution`` is the one from which they were drawn, only in rejection mode; ``choices`` are
    the drafter's likeliest tokens at this position, if requested.
    """

    children: tuple[int, ...]
    distribution: Distribution | None
    choices: TopK | None


def draw_children(
    logits: NDArray[np.floating[Any]],
    sampling: Sampling,
    position: int,
    count: int,
    num_choices: int = 0,
) -> Drawn:
    """Return up to ``count`` (at least 1) children for ``position``, and up to ``num_choices``
    choices.

    ``logits`` ``[vocab]`` are the drafter's. Greedy: the likeliest tokens; a choice's probability
    is that at temperature 1. Coupled: the tokens with the highest log q + noise, the same noise
    that the target will use; choices are the softmax of these scores, since the noise also decides
    which token the target takes. Rejection: draws without replacement (Gumbel top-k, Kool et al.
    2019) from the distribution that is also returned and that the verifier needs; choices are the
    likeliest tokens of the warped distribution, before it is truncated and rounded for the wire.
    There are fewer of both if the distribution has fewer tokens. In a large vocabulary, the nucleus
    of the drafter's distribution is a guess (see ``nucleus``), which costs a little acceptance but
    no exactness, since its tokens are verified. Raises ``FloatingPointError`` as
    ``warp`` does.
    """
    if sampling.mode is AcceptanceMode.REJECTION:
        return _draw_at_random(logits, sampling, position, count, num_choices)
    most = max(count, num_choices)
    if most == 1 and not num_choices:
        return Drawn((choose(logits, sampling, position),), None, None)
    if sampling.mode is AcceptanceMode.GREEDY:
        row = LogitsRow(logits, temperature=1.0)
        best, _, choices = _ranked(row, most, num_choices)
        return Drawn(tuple(best[:count].tolist()), None, choices)
    race = coupled(logits, sampling, position, most, guessed=True)
    choices = None
    if num_choices:
        probabilities, entropy = race.softmax()
        choices = _listed(race.token_ids[:num_choices], probabilities[:num_choices], entropy)
    return Drawn(tuple(race.token_ids[:count].tolist()), None, choices)


def forced_child(token: int, sampling: Sampling, num_choices: int = 0) -> Drawn:
    """Return what ``draw_children`` does for logits that leave only ``token``."""
    distribution = None
    if sampling.mode is AcceptanceMode.REJECTION:
        distribution = Distribution(np.array([token], np.int64), np.ones(1))
    return Drawn((token,), distribution, TopK((token,), (1.0,), 0.0) if num_choices else None)


def _draw_at_random(
    logits: NDArray[np.floating[Any]],
    sampling: Sampling,
    position: int,
    count: int,
    num_choices: int,
) -> Drawn:
    row = kept(logits, sampling, guessed=True)
    best, weights, choices = _ranked(row, max(MAX_CANDIDATES, num_choices), num_choices)
    draft = _fit_for_wire(best[:MAX_CANDIDATES], weights[:MAX_CANDIDATES])
    noise = gumbel(sampling.seed, position, Purpose.DRAFT, draft.token_ids)
    drawn = likeliest(np.log(draft.probabilities) + noise, count)
    return Drawn(tuple(draft.token_ids[drawn].tolist()), draft, choices)


def _ranked(
    row: LogitsRow, count: int, num_choices: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], TopK | None]:
    """Return the ``count`` likeliest tokens, best first, their weights, which may be 0, and the
    first ``num_choices`` of them as choices, if any."""
    estimates = row.token_ids is None and row.logits.size >= _ESTIMATED and num_choices > 0
    near = row.likely(max(count, _COUNTED)) if estimates else None
    best, weights = row.likeliest_with_weights(count, near)
    if not num_choices:
        return best, weights, None
    total, entropy = row.total_and_entropy() if near is None else row.estimate(near)
    return best, weights, _listed(best[:num_choices], weights[:num_choices] / total, entropy)


def _listed(
    token_ids: NDArray[np.int64], probabilities: NDArray[np.float64], entropy: float
) -> TopK:
    # Rounding errors must not take a probability above 1, nor an entropy below 0.
    within = np.clip(probabilities, _LEAST, 1.0)
    return TopK(tuple(token_ids.tolist()), tuple(within.tolist()), max(0.0, entropy))


def confidence(token: int, choices: TopK | None, distribution: Distribution | None) -> float:
    """Return the drafter's confidence that its ``token`` is accepted, from the data it sent for the
    position.

    The confidence is the drafter's probability of the token. It is higher in rejection mode (with a
    ``distribution``), where a token is certainly accepted if the target gives it at least the
    drafter's probability, however low. For a token that neither argument lists it is ``UNSEEN``.
    Without both arguments the drafter counts as certain: 1.
    """
    if distribution is not None:
        held = distribution.probabilities[distribution.token_ids == token]
        return DRAWN(float(held[0])) if held.size else UNSEEN
    if choices is None:
        return 1.0
    if token not in choices.token_ids:
        return UNSEEN
    return choices.probabilities[choices.token_ids.index(token)]


def highest_entropy(probabilities: Sequence[float], vocab_size: int) -> float:
    """Return the highest entropy, in nats, of any distribution with these ``probabilities``.

    The mass missing from 1 is spread evenly over the other tokens of the vocabulary. The result
    replaces an entropy that was not sent, so the drafter's confidence may be underestimated, but
    never overestimated.
    """
    rest, others = 1 - math.fsum(probabilities), vocab_size - len(probabilities)
    entropy = -math.fsum(p * math.log(p) for p in probabilities if p)
    if rest > 0 and others > 0:
        entropy -= rest * math.log(rest / others)
    return max(0.0, entropy)


def _fit_for_wire(token_ids: NDArray[np.int64], weights: NDArray[np.float64]) -> Distribution:
    """Return the distribution in proportion to ``weights`` ``[n]``, those of the likeliest tokens,
    rounded to multiples of 2**-24 with sum 1.

    Such numbers are exact in float32, so a verifier that normalises the numbers it receives gets
    exactly the probabilities used for drawing here. Neither step costs exactness: the acceptance
    rule yields the target's distribution for *any* q, as long as the draft tokens were drawn from
    that same q. The cost is acceptance, at most the probability of the tokens left out.
    """
    order = token_ids.argsort()
    token_ids, weights = token_ids[order], weights[order]
    steps = np.rint(weights * (_STEPS / weights.sum()))
    # The remainder, at most half a step a token and perhaps negative, goes to the likeliest.
    steps[steps.argmax()] += _STEPS - steps.sum()
    drawable = steps > 0
    return Distribution(token_ids[drawable], steps[drawable] / _STEPS)

"""Closed forms from the papers for the gains of speculation.

``alpha`` is the acceptance rate, ``gamma`` the number of draft tokens in a round. Leviathan et al.
2023, "Fast Inference from Transformers via Speculative Decoding", assumes that draft tokens are
accepted independently; Duan et al. 2024 (branch prediction) continues drafting while the target
verifies; Timor et al. 2025 (DSI) adds replicas of the target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import count

import numpy as np
from numpy.typing import NDArray


def acceptance_rate(target_probs: NDArray[np.float64], draft_probs: NDArray[np.float64]) -> float:
    """Return beta at one position, from the two distributions ``[vocab]``: 1 - TV (Theorem 3.5).

    Its mean over positions is alpha (Corollary 3.6).
    """
    return float(np.minimum(target_probs, draft_probs).sum())


def coupled_acceptance_rate(
    target_probs: NDArray[np.float64], draft_probs: NDArray[np.float64]
) -> float:
    """Return the probability that target and drafter draw the same token with the same Gumbel
    noise.

    It is the sum over x of 1 / sum over y of max(p(y)/p(x), q(y)/q(x)) (Daliri et al. 2024,
    "Coupling without Communication and Drafter-Invariant Speculative Decoding"): at least (1 - TV)
    / (1 + TV), never more than ``acceptance_rate``.
    """
    both = (target_probs > 0) & (draft_probs > 0)
    p, q = target_probs[both, None], draft_probs[both, None]
    return float((1 / np.maximum(target_probs / p, draft_probs / q).sum(axis=1)).sum())


def expected_tokens(alpha: float, gamma: int) -> float:
    """Return the mean number of tokens that a round commits: accepted ones and the target's own
    (Eq. 1).

    It is summed term by term, since (1 - alpha**(gamma + 1)) / (1 - alpha) loses precision near
    alpha 1.
    """
    return math.fsum(alpha**k for k in range(gamma + 1))


def walltime_factor(alpha: float, gamma: int, cost_ratio: float) -> float:
    """Return the speedup over the target alone (Theorem 3.8).

    ``cost_ratio`` is c, the time of a drafter's forward pass over that of a target's.
    """
    return expected_tokens(alpha, gamma) / (gamma * cost_ratio + 1)


def estimate_alpha(accepted_counts: Sequence[int], gamma: int) -> float:
    """Return the maximum-likelihood alpha, given the number of ``gamma`` draft tokens that each
    round accepted.

    A round that accepted all of them says nothing about the token after, so it counts as ``gamma``
    trials, not ``gamma + 1``: the geometric law of Section 3.1 is capped. Raises ``ValueError``
    without any trial, or for a count outside [0, ``gamma``].
    """
    if not all(0 <= accepted <= gamma for accepted in accepted_counts):
        raise ValueError(f"accepted counts must be in [0, {gamma}]")
    return alpha_of_rounds([accepted_counts.count(each) for each in range(gamma + 1)])


def alpha_of_rounds(rounds: Sequence[int]) -> float:
    """Return the same, given the number of rounds that accepted 0, 1, ... and all draft tokens."""
    accepted = sum(number * count for number, count in enumerate(rounds))
    rejected = sum(rounds[:-1])
    if not accepted + rejected:
        raise ValueError("no draft token was tried")
    return accepted / (accepted + rejected)


def speculative_throughput(target_ms: float, drafter_ms: float, gamma: int, alpha: float) -> float:
    """Return tokens per ms if a round drafts, then verifies (branch prediction, Eq. 7)."""
    return expected_tokens(alpha, gamma) / (gamma * drafter_ms + target_ms)


def branch_throughput(
    target_ms: float,
    drafter_ms: float,
    gamma: int,
    alpha: float,
    hit_rate: float,
    shortfall: float = 0.0,
) -> float:
    """Return tokens per ms if a right prediction hides the verification (branch prediction, Eq. 8).

    ``hit_rate`` is the share of rounds predicted correctly. ``shortfall`` is the number of tokens
    that they accepted beyond the prediction (delta - gamma in the paper); that many are drafted
    twice.

    Eq. 8 has the costs of its two cases swapped. It also averages rates weighted by rounds, which
    overstates the throughput: over many rounds that is the tokens over the mean time. And a
    verification can't be hidden behind a draft shorter than itself, which Eq. 14 excludes.
    """
    hit_ms = max((gamma + shortfall) * drafter_ms, target_ms)
    miss_ms = gamma * drafter_ms + target_ms
    return expected_tokens(alpha, gamma) / (hit_rate * hit_ms + (1 - hit_rate) * miss_ms)


def min_draft(target_ms: float, drafter_ms: float) -> int:
    """Return the shortest draft that hides a verification (branch prediction, Eq. 14)."""
    return _ceil(target_ms / drafter_ms)


def required_parallelism(target_ms: float, drafter_ms: float, lookahead: int) -> int:
    """Return the number of replicas of the target (SP) with which no verification waits (DSI, Eq.
    1)."""
    return _ceil(target_ms / (lookahead * drafter_ms))


def min_lookahead(target_ms: float, drafter_ms: float, sp: int) -> int:
    """Return the smallest lookahead for which ``sp`` replicas of the target suffice (DSI, Eq. 1).

    The smallest is usually the best: it finds a rejection soonest.
    """
    first = max(1, math.floor(target_ms / (sp * drafter_ms)))
    return next(
        lookahead
        for lookahead in count(first)
        if required_parallelism(target_ms, drafter_ms, lookahead) <= sp
    )


def _ceil(ratio: float) -> int:
    """Return ``ratio`` rounded up, unless only rounding errors put it above an integer."""
    return math.ceil(ratio * (1 - 1e-12))

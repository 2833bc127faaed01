"""The decision whether to draft ahead of verifications that do not wait for drafts."""

from __future__ import annotations

from specmesh.decoding.predict.closed_forms import expected_tokens
from specmesh.decoding.predict.round_costs import PAYS, RoundCosts


def pays_ahead(costs: RoundCosts, alpha: float, limit: int) -> bool:
    """Return whether drafts of which a share ``alpha`` is right are expected to pay if they are
    made during verifications, of which each covers at most ``limit`` of their tokens."""
    if alpha >= 1:
        return limit > 0
    free_s = costs.alone_s - costs.hop_s - costs.queue_s
    # The first of the tokens that are drafted meanwhile is for the position that is being verified.
    num_ready = int(free_s / costs.level_s) - 1 if costs.level_s else limit
    rates = (ahead_rate(costs, alpha, depth) for depth in range(1, min(limit, num_ready) + 1))
    return any(rate * costs.decoding_s > PAYS for rate in rates)


def ahead_rate(costs: RoundCosts, alpha: float, depth: int) -> float:
    """Return the tokens per second with drafts of which a share ``alpha`` < 1 is right, if
    verifications of ``depth`` tokens follow one another for as long as all of them are right, and
    the one after them as well, and another one of no token then.

    Between two rejections 1 / (1 - alpha) tokens are committed. The first verification has no draft
    tokens, and alpha of its successors one of ``depth``, of which each is followed by another with
    the probability alpha^(depth + 1).
    """
    num_verifications = alpha / ((1 - alpha) * expected_tokens(alpha, depth))
    seconds = costs.alone_s + num_verifications * costs.verification_s(depth)
    return 1 / ((1 - alpha) * seconds)

"""The tokens per second that DSI is expected to yield."""

from __future__ import annotations

import math
from typing import Final

from specmesh.decoding.predict.closed_forms import min_lookahead
from specmesh.decoding.predict.round_costs import RoundCosts
from specmesh.orchestrator.strategies.chains.reach import IN_VAIN

_CLEARLY: Final = 1.3
"""The factor by which the acceptance rate must exceed the price of a token: where both are about
equal, DSI drafts only at times."""
_NEGLIGIBLE: Final = 0.02
"""The probability that the rest of a chain is right with which the sum over it ends."""


def dsi_rate(costs: RoundCosts, num_verifiers: int, alpha: float) -> float:
    """Return the rate for drafts of which a share ``alpha`` < 1 is right (Timor et al. 2025).

    Between two rejections, 1 / (1 - alpha) tokens are committed. The first verification after a
    rejection has no draft tokens; each later one leaves with all tokens that were drafted since the
    previous one, once they are enough and a replica is free. The time from one rejection to the
    next is the mean of the times at which these verifications end, weighted by the probabilities
    that the first wrong token is in each.
    """
    least = max(costs.token_s / costs.alone_s, IN_VAIN)
    first_s = costs.level_s + costs.first_s + costs.token_s
    if alpha <= _CLEARLY * least or not costs.can_gain(alpha) or first_s >= costs.alone_s:
        return 1 / costs.alone_s
    level_s = max(costs.level_s, costs.alone_s / 1e3)
    lookahead = min_lookahead(costs.alone_s, level_s, num_verifiers)
    # With several replicas, a verification leaves as soon as a rejection is likely.
    enough = max(1.0, min(lookahead, math.log(0.5) / math.log(alpha)))
    if num_verifiers == 1:
        enough = lookahead
    most = max(1, int(min(2 * num_verifiers * lookahead, math.log(least) / math.log(alpha))))
    free_s = [0.0] * (num_verifiers - 1) + [costs.alone_s]
    seconds, num_rows, num_sent, left = (1 - alpha) * costs.alone_s, 0.0, 0, alpha
    while left > _NEGLIGIBLE:
        free_s.sort()
        begins_s = max(free_s[0], (num_sent + enough) * level_s)
        num_drafted = min(int(begins_s / level_s), num_sent + most)
        num_new = max(1, num_drafted - num_sent)
        ends_s = free_s[0] = begins_s + costs.verification_s(num_new)
        found = left * (1 - alpha**num_new)
        seconds += found * ends_s
        num_rows += left * (num_new + 1)
        num_sent, left = num_sent + num_new, left - found
    seconds /= 1 - left
    # Where answers share forwards, each row delays all of them, not only the next rejection.
    shared_s = num_rows * costs.token_s if costs.period_s else 0.0
    return 1 / (1 - alpha) / (seconds + shared_s)

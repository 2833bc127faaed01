"""The tokens per second that DSI is expected to yield."""

from __future__ import annotations

import math
from typing import Final

from specmesh.decoding.predict.closed_forms import min_lookahead
from specmesh.decoding.predict.round_costs import SURE, RoundCosts

IN_VAIN: Final = 0.03
"""Tokens that are accepted with a lower probability than this are not drafted: other requests need
the drafter, and an answer that has it to itself loses at most 2 % of its time. Eight concurrent
requests on two replicas whose forward takes as long as 13 of the drafter's (`specmesh simulate
run`, acceptance 0.8) end in two thirds of the time that they take without this bound."""
_NEGLIGIBLE: Final = 0.02
"""The probability that the rest of a chain is right with which the sum over it ends."""
_MISSED: Final = 0.5
"""The share of a period that a verification waits which leaves while the others compute."""
_DELAYING: Final = 0.5
"""The share of the rows at several shared replicas that has delayed answers in simulations: an
answer does not wait for all of these replicas at a time, as it does for a single one."""


def dsi_rate(costs: RoundCosts, num_verifiers: int, alpha: float) -> float:
    """Return the rate for drafts of which a share ``alpha`` is right (Timor et al. 2025).

    Between two rejections, 1 / (1 - alpha) tokens are committed. The first verification after a
    rejection has no draft tokens; each later one leaves with all tokens that were drafted since the
    previous one, once they are enough and a replica is free. The time from one rejection to the
    next is the mean of the times at which these verifications end, weighted by the probabilities
    that the first wrong token is in each. Verifications are sent until that is known.
    """
    alpha = min(alpha, SURE)
    least = max(costs.token_s / costs.alone_s, IN_VAIN)
    call_s = costs.hop_s + costs.queue_s
    first_s = call_s + costs.level_s + costs.first_s + costs.token_s
    if alpha <= least or not costs.can_gain(alpha) or first_s >= costs.alone_s:
        return 1 / costs.decoding_s
    level_s = max(costs.level_s, costs.alone_s / 1e3)
    lookahead = min_lookahead(costs.alone_s, level_s, num_verifiers)
    lookahead = max(lookahead, costs.shared_lookahead(alpha))
    # With several replicas, a verification leaves as soon as a rejection is likely.
    enough = max(1.0, min(lookahead, math.log(0.5) / math.log(alpha)))
    if num_verifiers == 1:
        enough = lookahead
    most = max(1, int(min(2 * num_verifiers * lookahead, math.log(least) / math.log(alpha))))
    free_s = [0.0] * (num_verifiers - 1) + [costs.alone_s]
    found = [(costs.alone_s, 1 - alpha)]  # when a rejection is known, and its probability
    num_rows, num_sent, left = 0.0, 0, alpha
    while left > _NEGLIGIBLE:
        free_s.sort()
        begins_s = max(free_s[0], call_s + (num_sent + enough) * level_s)
        num_drafted = min(int((begins_s - call_s) / level_s), num_sent + most)
        num_new = max(1, num_drafted - num_sent)
        waits_s = _MISSED * costs.period_s if begins_s > free_s[0] else 0.0
        num_rows += (num_new + 1) * (1 - sum(share for at_s, share in found if at_s <= begins_s))
        ends_s = free_s[0] = begins_s + waits_s + costs.verification_s(num_new)
        found.append((ends_s, left * (1 - alpha**num_new)))
        num_sent, left = num_sent + num_new, left * alpha**num_new
    seconds = sum(at_s * share for at_s, share in found) / (1 - left)
    # Where answers share forwards, each row delays all of them, not only the next rejection.
    delaying = _DELAYING if num_verifiers > 1 else 1.0
    shared_s = delaying * num_rows * costs.token_s if costs.period_s else 0.0
    return 1 / (1 - alpha) / (seconds + shared_s)

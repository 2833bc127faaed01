"""The costs of a mesh by a trace; the unexplained part of a forward is drawn at random."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import StatisticsError, linear_regression, median

from specmesh.simulation.costs import Hop, MeshCosts
from specmesh.simulation.law import Law, quantiles
from specmesh.simulation.replay.recorded import Forward, RecordedRequest


def costs_of(request: RecordedRequest) -> MeshCosts:
    """Return the costs by one request's trace. Each of its drafts counts once."""
    levels_ms = Counter(1e3 * each for each in request.drafter_level_s)
    heads_s, hop = request.heads_level_s, Hop(2e3 * request.hop_s)
    return MeshCosts(
        target=target_law(request.verifications),
        drafters=(Law.drawn(levels_ms),) if levels_ms else (),
        heads=Law.fixed(1e3 * median(heads_s)) if heads_s else None,
        verify_hop=hop,
        draft_hop=hop,
    )


def target_law(forwards: Sequence[Forward]) -> Law:
    """Fit the law of one or more forwards. More nodes never make it quicker."""
    later = [each for each in forwards if not each.first] or forwards
    node_ms = _slope_ms(later)

    def base_ms(forward: Forward) -> float:
        return 1e3 * forward.seconds - node_ms * forward.num_nodes

    usual_ms = median(map(base_ms, later))
    rest = [base_ms(each) - usual_ms for each in later]
    firsts = [base_ms(each) - usual_ms for each in forwards if each.first] or [0.0]
    one_ms = usual_ms + min(rest) + node_ms
    if one_ms <= 0:  # The line falls below the times that it was fitted to.
        one_ms = 1e3 * min(each.seconds for each in forwards)
    return Law(
        (1.0, 2.0),
        (one_ms, one_ms + node_ms),
        prompt_ms=max(median(firsts), 0.0),
        rest=quantiles(Counter(each - min(rest) for each in rest)),
    )


def _slope_ms(forwards: Sequence[Forward]) -> float:
    sizes = [each.num_nodes for each in forwards]
    try:
        fitted = linear_regression(sizes, [1e3 * each.seconds for each in forwards])
    except StatisticsError:  # There is only one size.
        return 0.0
    return max(fitted.slope, 0.0)

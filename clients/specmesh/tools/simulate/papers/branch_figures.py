"""Branch prediction's Figures 5-7 and 12: throughput by n, closed forms beside the strategies.

Duan et al. 2024, Sections 5.2.3, 6.3 and 6.4, with the speeds of its 15 M drafter and 110 M target.
The paper predicts only how many tokens are accepted. To make that sufficient here, too, the
drafter's second choice is always right where its first is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from specmesh.decoding.predict.closed_forms import (
    branch_throughput,
    expected_tokens,
    min_draft,
    speculative_throughput,
)
from specmesh.decoding.simulated.hashed import SimulatedDrafter, SimulatedTarget
from specmesh.decoding.trees.tree import EMPTY
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.commands import Command, Draft, Verify
from specmesh.orchestrator.strategies.events import Event
from specmesh.simulation.costs import MeshCosts
from specmesh.simulation.mesh import MeshModel
from specmesh.simulation.models import CertainModels
from specmesh.simulation.run import Answered, simulate
from specmesh.tools.simulate.papers.rules import agreements

ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9)
MAX_N = 20
PROMPT = (0,)
TARGET_S = 1 / 6.13
DRAFTER_S = 1 / 45.59
"""Table 3's 15 M + 110 M pair, which Sections 6.3 and 6.4 use."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Tokens per second with and without branch prediction, at n tokens per round."""

    alpha: float
    occurred_alpha: float
    """The rate in this text, which the closed forms use, so that only the order is random."""
    n: int
    si_closed: float
    si_clock: float
    branch_closed: float
    branch_clock: float
    hit_rate_clock: float


@dataclass(frozen=True, slots=True)
class ExhaustivePoint:
    """The exhaustive method against one branch; compute is drafted tokens per output token."""

    n: int
    branch_tokens_per_s: float
    exhaustive_tokens_per_s: float
    branch_drafter_compute: float
    exhaustive_drafter_compute: float

    @property
    def compute_factor(self) -> float | None:
        """Return how many times as many tokens the exhaustive method drafts; None if one branch
        drafts none."""
        if not self.branch_drafter_compute:
            return None
        return self.exhaustive_drafter_compute / self.branch_drafter_compute


def hit_rate(alpha: float, n: int) -> float:
    """Return P(the likeliest outcome happens): the first token is wrong, or all n and the next are
    right.

    The target's token after a whole draft is only guessed right with probability alpha.
    """
    return max(1 - alpha, alpha ** (n + 1))


def branch_closed(target_s: float, drafter_s: float, n: int, alpha: float) -> float:
    """Return tokens per second by Eq. 8, corrected: a bonus token uses up the first of its branch.

    A round after a wholly accepted one therefore has n - 1 draft tokens; the share of such rounds
    is that of the stationary Markov chain of rounds. Holds from n = ⌈T/t⌉ on.
    """
    hits = hit_rate(alpha, n)
    if hits == 1 - alpha:
        return branch_throughput(target_s, drafter_s, n, alpha, hits)
    next_hits = alpha**n
    shorter = hits / (1 + hits - next_hits)
    tokens = (1 - shorter) * expected_tokens(alpha, n) + shorter * expected_tokens(alpha, n - 1)
    hit_share = (1 - shorter) * hits + shorter * next_hits
    hidden_s = max(n * drafter_s, target_s)
    return tokens / (hit_share * hidden_s + (1 - hit_share) * (n * drafter_s + target_s))


def least_n(target_s: float = TARGET_S, drafter_s: float = DRAFTER_S) -> int:
    """Return the least n with which a draft hides a verification (Eq. 14): the figures' vertical
    bar."""
    return min_draft(target_s, drafter_s)


def points_of(alpha: float, num_tokens: int, seed: int) -> list[CurvePoint]:
    """Return the points at ``alpha`` of Figures 5 to 7."""
    target = SimulatedTarget(seed)
    occurred = fmean(agreements(SimulatedDrafter(target, alpha), PROMPT, num_tokens))
    curve = []
    for n in range(1, MAX_N + 1):
        run = partial(_run, alpha=alpha, n=n, num_tokens=num_tokens, seed=seed)
        rounds = SimulatedRounds()
        branch = run("branch-prediction", rounds=rounds)
        curve.append(
            CurvePoint(
                alpha,
                occurred,
                n,
                speculative_throughput(TARGET_S, DRAFTER_S, n, occurred),
                num_tokens / run("speculative").duration_s,
                branch_closed(TARGET_S, DRAFTER_S, n, occurred),
                num_tokens / branch.duration_s,
                rounds.hit_rate,
            )
        )
    return curve


def largest_difference(points: Sequence[CurvePoint]) -> float:
    """Return the largest relative difference of closed forms from the clock; branch prediction's
    from ⌈T/t⌉ on."""
    return max(
        max(
            abs(point.si_clock / point.si_closed - 1),
            abs(point.branch_clock / point.branch_closed - 1) if point.n >= least_n() else 0.0,
        )
        for point in points
    )


def exhaustive_points(alpha: float, num_tokens: int, seed: int) -> Iterator[ExhaustivePoint]:
    """Yield the points of Figure 12, from n = ⌈T/t⌉ on."""
    for n in range(least_n(), MAX_N + 1):
        run = partial(_run, alpha=alpha, n=n, num_tokens=num_tokens, seed=seed)
        branch, exhaustive = run("branch-prediction"), run("exhaustive")
        yield ExhaustivePoint(
            n,
            num_tokens / branch.duration_s,
            num_tokens / exhaustive.duration_s,
            branch.num_drafted_tokens / num_tokens,
            exhaustive.num_drafted_tokens / num_tokens,
        )


class SimulatedRounds:
    """A counter of rounds, and of those that begin with a new draft because no branch was right."""

    def __init__(self) -> None:
        self._rounds = self._from_scratch = 0

    def observe(self, now_s: float, what: Command | Event) -> None:  # noqa: ARG002
        """Count a command or an event of the strategy."""
        match what:
            case Verify(tree=tree) if len(tree):
                self._rounds += 1
            case Draft() if what.tree is EMPTY:
                self._from_scratch += 1

    @property
    def hit_rate(self) -> float:
        """Return the share of rounds that began with a right prediction; 0 without rounds."""
        return 1 - self._from_scratch / self._rounds if self._rounds else 0.0


def throughput_on_clock(
    strategy: str,
    target_s: float,
    drafter_s: float,
    alpha: float,
    n: int,
    num_tokens: int,
    seed: int,
) -> float:
    """Return the strategy's tokens per second on the virtual clock."""
    answered = _run(*(strategy, alpha, n, num_tokens, seed), target_s=target_s, drafter_s=drafter_s)
    return num_tokens / answered.duration_s


def _run(
    strategy: str,
    alpha: float,
    n: int,
    num_tokens: int,
    seed: int,
    rounds: SimulatedRounds | None = None,
    target_s: float = TARGET_S,
    drafter_s: float = DRAFTER_S,
) -> Answered:
    drafter = SimulatedDrafter(SimulatedTarget(seed), alpha, runner_up=1.0)
    return simulate(
        STRATEGIES[strategy](Goal(num_tokens, lookahead=n)),
        CertainModels(drafter.target, (drafter,)),
        MeshModel(MeshCosts.fixed(1e3 * target_s, 1e3 * drafter_s)),
        prompt=PROMPT,
        observe=rounds.observe if rounds else None,
    )

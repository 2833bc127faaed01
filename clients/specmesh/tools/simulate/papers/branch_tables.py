"""Branch prediction's Tables 3 and 4 from the models' throughputs.

Duan et al. 2024, Section 6.2. The acceptance rate isn't published: it is fitted so that Eq. 7
gives the published throughput of speculative sampling. With it Eq. 8 predicts the throughput of
branch prediction. n is ⌈T/t⌉ (Eq. 14), which Section 6.3 finds best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import count

from specmesh.decoding.predict.closed_forms import (
    branch_throughput,
    expected_tokens,
    min_draft,
    speculative_throughput,
)
from specmesh.tools.simulate.papers.branch_figures import (
    DRAFTER_S,
    TARGET_S,
    branch_closed,
    hit_rate,
    throughput_on_clock,
)

_BISECTIONS = 60
_PRINTED = 0.1
"""Tolerance of the printed speed-ups, which have one decimal and are partly truncated."""


@dataclass(frozen=True, slots=True)
class Published:
    """A published row: tokens per second of the small model, the target, and the two methods."""

    table: int
    small: str
    target: str
    small_tokens_per_s: float
    target_tokens_per_s: float
    speculative_tokens_per_s: float
    branch_tokens_per_s: float
    printed_speedup: float
    """Speed-up of branch prediction over the target, as the table prints it."""

    @property
    def is_figures_pair(self) -> bool:
        """Return whether the paper's figures are about this row's models."""
        return (self.drafter_s, self.target_s) == (DRAFTER_S, TARGET_S)

    @property
    def drafter_s(self) -> float:
        """Return the seconds of a drafter's forward, t."""
        return 1 / self.small_tokens_per_s

    @property
    def target_s(self) -> float:
        """Return the seconds of a target's forward, T."""
        return 1 / self.target_tokens_per_s


ROWS: Sequence[Published] = (
    Published(3, "260K", "15M", 2400, 45.59, 50.12, 65.33, 1.4),
    Published(3, "260K", "42M", 2400, 16.29, 18.02, 21.18, 1.3),
    Published(3, "15M", "42M", 45.59, 16.29, 25.23, 35.51, 2.2),
    Published(3, "260K", "110M", 2400, 6.13, 6.72, 7.24, 1.2),
    Published(3, "15M", "110M", 45.59, 6.13, 12.21, 15.73, 2.6),
    Published(3, "42M", "110M", 16.29, 6.13, 10.09, 13.58, 2.2),
    Published(4, "260K", "15M", 1852, 31.29, 45.33, 59.53, 1.9),
    Published(4, "260K", "42M", 1852, 12.06, 17.79, 19.21, 1.6),
    Published(4, "15M", "42M", 31.29, 12.06, 22.48, 31.01, 2.6),
    Published(4, "260K", "110M", 1852, 4.38, 5.52, 6.89, 1.6),
    Published(4, "15M", "110M", 31.29, 4.38, 11.28, 13.31, 3.2),
    Published(4, "42M", "110M", 12.06, 4.38, 10.01, 13.42, 3.4),
)


@dataclass(frozen=True, slots=True)
class Explained:
    """A row, and the predictions of closed forms and the virtual clock for it."""

    published: Published
    n: int
    n_hides_verification: int
    """⌈T/t⌉. ``n`` is higher where no acceptance rate gives the published throughput with it."""
    alpha: float
    branch_eq8: float
    branch_closed: float
    """Eq. 8 corrected for bonus tokens."""
    branch_clock: float
    branch_bound: float
    """Throughput if every prediction were right: the maximum for this n."""
    published_hit_rate: float
    """The share of right predictions that Eq. 8 needs for the published throughput."""

    def as_dict(self) -> dict[str, object]:
        """Return the row for JSON and CSV."""
        own = asdict(self)
        published = own.pop("published")
        return {**published, **own, "speedup": self.speedup}

    @property
    def speedup(self) -> float:
        """Return the speed-up of branch prediction over the target, from the published
        throughputs."""
        return self.published.branch_tokens_per_s / self.published.target_tokens_per_s


def explain(row: Published, num_tokens: int, seed: int) -> Explained:
    """Fit alpha to speculative sampling; predict branch prediction's throughput with it."""
    least = min_draft(row.target_s, row.drafter_s)
    n = next(
        n
        for n in count(least)
        if speculative_throughput(row.target_s, row.drafter_s, n, 1.0)
        > row.speculative_tokens_per_s
    )
    alpha = _fit_alpha(row, n)
    tokens = expected_tokens(alpha, n)
    hidden_s = max(n * row.drafter_s, row.target_s)
    missed_s = n * row.drafter_s + row.target_s
    return Explained(
        row,
        n,
        least,
        alpha,
        branch_throughput(row.target_s, row.drafter_s, n, alpha, hit_rate(alpha, n)),
        branch_closed(row.target_s, row.drafter_s, n, alpha),
        throughput_on_clock(
            "branch-prediction", row.target_s, row.drafter_s, alpha, n, num_tokens, seed
        ),
        tokens / hidden_s,
        (missed_s - tokens / row.branch_tokens_per_s) / (missed_s - hidden_s),
    )


def _fit_alpha(row: Published, n: int) -> float:
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        alpha = (low + high) / 2
        if (
            speculative_throughput(row.target_s, row.drafter_s, n, alpha)
            < row.speculative_tokens_per_s
        ):
            low = alpha
        else:
            high = alpha
    return high


def shapes(explained: Sequence[Explained]) -> dict[str, bool]:
    """Return the paper's statements about its tables, and whether the closed forms confirm them."""
    return {
        "branch_prediction_beats_speculative_sampling_in_every_row": all(
            each.branch_closed > each.published.speculative_tokens_per_s for each in explained
        ),
        "every_published_throughput_is_possible": all(
            0 <= each.published_hit_rate <= 1 for each in explained
        ),
        "best_drafter_of_the_110M_target_is_15M_in_text_generation": _best(explained, 3) == "15M",
        "best_drafter_of_the_110M_target_is_42M_in_translation": _best(explained, 4) == "42M",
        "printed_speedups_are_those_of_the_printed_throughputs": all(
            abs(each.speedup - each.published.printed_speedup) < _PRINTED for each in explained
        ),
    }


def _best(explained: Sequence[Explained], table: int) -> str:
    rows = (e for e in explained if e.published.table == table and e.published.target == "110M")
    return max(rows, key=lambda each: each.branch_closed).published.small

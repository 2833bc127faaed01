"""The times of the table's rows on a mesh without overhead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specmesh.tools.simulate.papers.table2 import PublishedRow, Table2Experiment, timings

Setting = tuple[str, int | None]
"""A strategy and its lookahead, None if it has none."""


@dataclass(frozen=True, slots=True)
class ExpectedRow:
    """A row of the table on the virtual clock."""

    published: PublishedRow
    simulated_s: Mapping[Setting, Sequence[float]]
    """Seconds of each prompt."""
    dsi_lookaheads: frozenset[int | None]
    """Lookaheads of DSI for which seven replicas suffice (Equation 1)."""

    def best(self, strategy: str, seconds: Mapping[Setting, Sequence[float]]) -> Setting:
        """Return the strategy with its fastest lookahead, by ``seconds``.

        As in the paper, DSI may only use one for which its replicas suffice.
        """
        admissible = [
            setting
            for setting in seconds
            if setting[0] == strategy and (strategy != "dsi" or setting[1] in self.dsi_lookaheads)
        ]
        return min(admissible, key=lambda setting: sum(seconds[setting]))


def simulate_row(
    row: PublishedRow, seed: int, prompts: Sequence[Sequence[int]], num_tokens: int
) -> ExpectedRow:
    """Run a row on the virtual clock; ``seed`` is the simulated target's."""
    found = list(timings(row, Table2Experiment(num_tokens, (seed,), prompts)))
    return ExpectedRow(
        row,
        {(each.strategy, each.lookahead): each.seconds for each in found},
        frozenset(
            each.lookahead for each in found if each.strategy == "dsi" and each.satisfies_eq1
        ),
    )

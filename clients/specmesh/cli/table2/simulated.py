"""The rows of the table and their simulated times, from ``specmesh simulate table2``.

A program of its own: the command line reaches the orchestrator's code only as a process.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specmesh.cli.local.process import StartError, missing_package

Setting = tuple[str, int | None]
"""A strategy and its lookahead, None where it has none."""


@dataclass(frozen=True, slots=True)
class Row:
    """A pair of models on a dataset; times of one forward each."""

    target: str
    drafter: str
    dataset: str
    target_ms: float
    drafter_ms: float
    acceptance: float
    published_dsi_over_si: float
    simulated_s: Mapping[Setting, Sequence[float]]
    """What each prompt takes on the virtual clock."""
    dsi_lookaheads: frozenset[int]
    """Those with which seven replicas suffice (DSI, Equation 1)."""

    def best(self, strategy: str, seconds: Mapping[Setting, Sequence[float]]) -> Setting:
        """The strategy at the lookahead with which it took the fewest ``seconds``.

        As in the paper, DSI has the choice of those with which its replicas suffice.
        """
        admissible = [
            setting
            for setting in seconds
            if setting[0] == strategy and (strategy != "dsi" or setting[1] in self.dsi_lookaheads)
        ]
        return min(admissible, key=lambda setting: sum(seconds[setting]))


async def simulate_rows(seed: int, prompts: Sequence[Sequence[int]], num_tokens: int) -> list[Row]:
    """All rows. Raises StartError if the simulator can't be run."""
    arguments = ["--json", "--seed", str(seed), "--repeats", "1", "--tokens", str(num_tokens)]
    for prompt in prompts:
        arguments += ["--prompt-tokens", ",".join(map(str, prompt))]
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "specmesh.orchestrator.simulation", "table2", *arguments),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
    )
    output, errors = await child.communicate()
    if child.returncode:
        said = errors.decode(errors="replace")
        reason = " ".join(said.strip().splitlines()[-1:])
        raise StartError(
            missing_package("the simulator", said) or f"the simulator failed: {reason}"
        )
    return [
        Row(
            *(row["target"], row["drafter"], row["dataset"]),
            *(row["target_ms"], row["drafter_ms"], row["acceptance"]),
            row["published_dsi_over_si"],
            {(each["strategy"], each["lookahead"]): each["seconds"] for each in row["timings"]},
            frozenset(
                each["lookahead"]
                for each in row["timings"]
                if each["strategy"] == "dsi" and each["satisfies_eq1"]
            ),
        )
        for row in json.loads(output)["rows"]
    ]

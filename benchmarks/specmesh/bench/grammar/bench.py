"""The steps of ``specmesh bench grammar``: answers on a mesh, then masks in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from specmesh.bench.grammar.answers import SchemaFigures, SchemaRuns, figures_of
from specmesh.bench.grammar.masks import MaskTimes, measure_masks
from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.local.mesh import MeshOptions
from specmesh.cli.tables import WholeTable
from specmesh.tools.kit.bench import Bench, Surroundings
from specmesh.tools.kit.progress import progress
from specmesh.tools.kit.tables import table_of

NUM_MASKED = 20
"""The number of schemas whose masks are timed."""


class GrammarBench(Bench):
    """One run of the benchmark; the last of ``entries`` gives the time that is reported first."""

    def __init__(
        self,
        runs: SchemaRuns,
        entries: Sequence[int],
        options: MeshOptions,
        surroundings: Surroundings,
    ) -> None:
        super().__init__(options, surroundings)
        self._runs = runs
        self._entries = entries

    async def run(self) -> tuple[int, Mapping[str, Any]]:
        """Run everything; return the exit status and the results."""
        async with self.mesh.running() as client:
            with progress("answers", self._runs.number, self.console) as advance:
                answers = [each async for each in self._runs.answers(client, advance)]
        found = figures_of(answers, self._runs.schemas)
        masked = self._runs.schemas[:NUM_MASKED]
        masks = [measure_masks(each, masked) for each in self._entries]
        self.say(described(found))
        self.console.print(mask_table(masks))
        good = found.valid and found.identical
        return 0 if good else ExitStatus.FAILED, {
            "valid": found.valid,
            **asdict(found),
            "mask_us_per_token": masks[-1].us_per_token,
            "masks": [asdict(each) for each in masks],
        }


def described(found: SchemaFigures) -> str:
    """Return ``found`` in a few lines."""
    texts = "the same" if found.identical else "NOT THE SAME"
    return (
        f"{found.num_ended} of {found.num_answers} answers ended by themselves; "
        f"{found.num_valid} of these are valid.\n"
        f"Texts are {texts} with speculation, which is {found.speedup:.2f} times as fast as the "
        f"target alone; without grammars {found.speedup_without:.2f} times.\n"
        f"A verification accepts {found.accepted_per_verify:.2f} draft tokens; without grammars "
        f"{found.accepted_per_verify_without:.2f}."
    )


def mask_table(masks: Sequence[MaskTimes]) -> WholeTable:
    """Return the times of masks as a table."""
    return table_of(
        "Masks of JSON Schemas",
        masks,
        [
            ("entries", lambda each: f"{each.entries:,}"),
            ("compile, ms", lambda each: f"{each.compile_ms:.2f}"),
            ("match, µs", lambda each: f"{each.match_us:.1f}"),
            ("find, µs", lambda each: f"{each.find_us:.1f}"),
            ("apply, µs", lambda each: f"{each.apply_us:.1f}"),
            ("a token, µs", lambda each: f"{each.us_per_token:.1f}"),
            ("slowest, µs", lambda each: f"{each.slowest_us:.0f}"),
        ],
    )

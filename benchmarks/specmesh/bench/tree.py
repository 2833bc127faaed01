"""``specmesh bench tree``: token trees against chains and the target alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.table import Table

from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.local.mesh import MeshOptions
from specmesh.cli.local.model_options import HeadsFolder, PairOptions
from specmesh.cli.local.options import RedisUrl, Threads, TreesFile
from specmesh.decoding.trees.plan import MAX_WIDTH
from specmesh.orchestrator.strategies.options import CALIBRATED, GROWN, StrategyOptions
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.bench import Bench, Surroundings, conduct
from specmesh.tools.kit.experiment import (
    AUTOREGRESSIVE,
    HEADS,
    HEADS_AND_DRAFTER,
    SPECULATIVE,
    TREE,
    Experiment,
    Run,
    Speculation,
    by_prompt,
    differing_prompts,
    tokens_per_s,
)
from specmesh.tools.kit.experiment_options import ExperimentOptions
from specmesh.tools.kit.options import Json
from specmesh.tools.kit.setting import describe_setting, setting_json
from specmesh.tools.kit.tables import same, table_of

WIDTHS = (4, 8, 16)
_PLAIN = Speculation(AUTOREGRESSIVE)

app = App()


@app.command()
def main(
    *,
    pair: PairOptions,
    heads: HeadsFolder = None,
    asked: ExperimentOptions,
    width: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            max=MAX_WIDTH,
            help="Fixed width of trees. May be repeated.",
            show_default=", ".join(map(str, WIDTHS)),
        ),
    ] = None,
    trees: TreesFile = None,
    threads: Threads = 1,
    redis_url: RedisUrl = None,
    json_: Json = False,
) -> None:
    """Run the target alone, speculative decoding and trees on the same prompts in turn.

    Trees have adaptive and fixed widths. They are the drafter's (with --trees calibrated ones, too)
    and, if the target has heads, theirs, and theirs merged with the drafter's chain. Exits with 1
    if their texts differ.
    """

    def make(surroundings: Surroundings) -> TreeBench:
        models = pair.real_models(threads, heads)
        options = MeshOptions(
            models=models, trees=trees, threads=threads, redis_url=redis_url, drain_s=1.0
        )
        experiment = asked.experiment(
            speculations(
                tuple(dict.fromkeys(width or WIDTHS)),
                (GROWN,) if trees is None else (GROWN, CALIBRATED),
                with_heads=models.heads is not None,
            )
        )
        return TreeBench(experiment, options, surroundings)

    conduct(make, as_json=json_)


def speculations(
    widths: Sequence[int], shapes: Sequence[str] = (GROWN,), *, with_heads: bool
) -> tuple[Speculation, ...]:
    """Return autoregressive decoding as the baseline, chains, adaptive trees and trees of each
    width. Trees are those of the drafter in each of ``shapes``, of heads, and of heads and the
    drafter."""
    of_drafter = (
        Speculation(TREE, StrategyOptions(width=width, shape=shape))
        for width in widths
        for shape in shapes
    )
    of_heads = (
        Speculation(strategy, StrategyOptions(width=each))
        for strategy in (HEADS, HEADS_AND_DRAFTER)
        for each in (None, *widths)
    )
    return (
        *(_PLAIN, Speculation(SPECULATIVE), Speculation(TREE), *of_drafter),
        *(of_heads if with_heads else ()),
    )


class TreeBench(Bench):
    """One run of the benchmark; the experiment's speculations come from ``speculations``."""

    def __init__(
        self, experiment: Experiment, options: MeshOptions, surroundings: Surroundings
    ) -> None:
        super().__init__(options, surroundings)
        self._experiment = experiment

    async def run(self) -> tuple[int, Mapping[str, Any]]:
        """Run everything; return the exit status and the results."""
        async with self.mesh.running() as client:
            self.say(describe_setting(self))
            runs = await self._experiment.runs(client, self.console)
        drafter = ", ".join(Path(name).name for name in self.models.drafter_names)
        found = rows(runs, drafter)
        for each in self._experiment.temperatures:
            self.console.print(rows_table([row for row in found if row.temperature == each]))
        identical = all(row.identical for row in found)
        setting = setting_json(self, self._experiment)
        del setting["speculation"]  # It is keyed by strategy, which is not unique here.
        return 0 if identical else ExitStatus.FAILED, {
            **setting,
            "identical": identical,
            "rows": [asdict(row) for row in found],
        }


@dataclass(frozen=True, slots=True)
class TreeRow:
    """One way of decoding at one temperature."""

    strategy: str
    drafter: str | None
    """``heads`` for the target's own, followed by the drafter's name for both."""
    temperature: float
    width: int | None
    """Width of every tree; None if it adapts."""
    shape: str | None
    """Shape of trees of fixed width: grown or calibrated."""
    drafted_per_call: float
    """Mean draft tokens that a verification covers."""
    accepted_per_call: float
    tokens_per_s: float
    """The tokens of all prompts over the time of all prompts."""
    ratio: float
    """Median speedup over autoregressive decoding, over the prompts."""
    identical: bool
    """True if all texts equal those of autoregressive decoding; False reveals a bug."""


def rows(runs: Sequence[Run], drafter: str) -> list[TreeRow]:
    """Summarise the runs; each prompt must have been run with every speculation."""
    by_way: dict[tuple[float, Speculation], list[Run]] = {}
    for run in runs:
        by_way.setdefault((run.temperature, run.speculation), []).append(run)
    return [
        _row(temperature, way, own, by_way[temperature, _PLAIN], drafter)
        for (temperature, way), own in by_way.items()
    ]


def _row(
    temperature: float, way: Speculation, runs: Sequence[Run], plain: Sequence[Run], drafter: str
) -> TreeRow:
    stats = [run.result.stats for run in runs]
    num_calls = sum(each.num_verify_calls for each in stats)
    alone = by_prompt(plain)
    who = {AUTOREGRESSIVE: None, HEADS: HEADS, HEADS_AND_DRAFTER: f"{HEADS}, {drafter}"}
    return TreeRow(
        strategy=way.strategy,
        drafter=who.get(way.strategy, drafter),
        temperature=temperature,
        width=way.options.width,
        shape=way.options.shape,
        drafted_per_call=sum(each.num_verified_tokens for each in stats) / num_calls,
        accepted_per_call=sum(each.num_accepted_tokens for each in stats) / num_calls,
        tokens_per_s=tokens_per_s(runs),
        ratio=median(run.tokens_per_s / alone[run.prompt].tokens_per_s for run in runs),
        identical=not differing_prompts(by_prompt(runs), alone),
    )


def rows_table(rows: Sequence[TreeRow]) -> Table:
    """Return a table for one temperature: tokens drafted and accepted per verification, and
    speed."""
    return table_of(
        f"Temperature {rows[0].temperature:g}",
        rows,
        (
            ("strategy", lambda row: row.strategy),
            ("width", _width),
            ("shape", lambda row: row.shape or ""),
            ("drafted", lambda row: f"{row.drafted_per_call:.2f}"),
            ("accepted", lambda row: f"{row.accepted_per_call:.2f}"),
            ("tokens/s", lambda row: f"{row.tokens_per_s:.1f}"),
            ("speed-up", lambda row: f"[bold]{row.ratio:.2f}x"),
            ("same", lambda row: same(identical=row.identical)),
        ),
    )


def _width(row: TreeRow) -> str:
    if row.width is not None:
        return str(row.width)
    return "adaptive" if row.strategy in (TREE, HEADS, HEADS_AND_DRAFTER) else ""


if __name__ == "__main__":
    app(prog_name="specmesh bench tree")

"""The parts of the benchmark in order, each program in its own process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter

from rich.console import Console

from specmesh.bench.engine.agreement import Agreement, compare_all, margins_nats
from specmesh.bench.engine.baseline import generate_batches
from specmesh.bench.engine.figures import (
    Figures,
    TimedAnswer,
    Turn,
    peak_memory_mb,
    speedup,
)
from specmesh.bench.engine.ours import (
    SharedPrefix,
    answer_streams,
    shared_prefix,
    width_ms,
)
from specmesh.bench.engine.plan import EnginePlan
from specmesh.bench.engine.turns import side_by_side
from specmesh.tools.kit.processes import processes

Round = Sequence[Turn]
Runs = Mapping[int, Sequence[Round]]
"""Rounds by number of streams."""


@dataclass(frozen=True, slots=True)
class EngineRuns:
    """The results.

    ``streams`` (ours) and ``baseline`` are the figures of the fastest rounds, by number of streams;
    ``over_baseline`` is the median ratio of their tokens/s over all turns. ``margins_nats`` has a
    margin for every flip of the comparison of that name.
    """

    streams: Mapping[int, Figures]
    baseline: Mapping[int, Figures]
    over_baseline: Mapping[int, float]
    width_ms: Mapping[int, float]
    peak_memory_mb: Mapping[str, float]
    comparisons: Mapping[str, Agreement]
    margins_nats: Mapping[str, list[float]]
    shared_prefix: SharedPrefix

    @property
    def identical(self) -> bool:
        """Return whether our tokens are those of ``generate``, and the same with any number of
        streams."""
        return not any(
            comparison.flips
            for name, comparison in self.comparisons.items()
            if name.startswith("ours")
        )


def measure(plan: EnginePlan, console: Console) -> EngineRuns:
    """Run everything, showing the current step on ``console``. Raises ``ModelNotLoadable``."""
    ours: dict[int, list[Round]] = {streams: [] for streams in plan.streams}
    baseline: dict[int, list[Round]] = {streams: [] for streams in plan.streams}
    with console.status("") as status, processes(1) as engine, processes(1) as transformers:
        programs = ((engine, answer_streams), (transformers, generate_batches))
        for streams in plan.streams * plan.rounds:
            status.update(f"the engine and generate in turns, {streams} streams")
            turns = zip(*side_by_side(plan, streams, programs), strict=True)
            for runs, of_one in zip((ours, baseline), turns, strict=True):
                runs[streams].append(of_one)
        peaks = {
            "ours": engine.submit(peak_memory_mb).result(),
            "baseline": transformers.submit(peak_memory_mb).result(),
        }
        status.update("the engine, verifications by width")
        widths = engine.submit(width_ms, plan).result()
        status.update("the engine, sessions with one system prompt")
        shared = engine.submit(shared_prefix, plan).result()
        status.update("margins of the ties")
        comparisons = compare_all(_answers(ours), _answers(baseline))
        margins = _margins(plan, comparisons)
    return EngineRuns(
        streams=_figures(ours),
        baseline=_figures(baseline),
        over_baseline={
            streams: speedup(chain.from_iterable(rounds), chain.from_iterable(baseline[streams]))
            for streams, rounds in ours.items()
        },
        width_ms=widths,
        peak_memory_mb=peaks,
        comparisons=comparisons,
        margins_nats=margins,
        shared_prefix=shared,
    )


def _figures(runs: Runs) -> dict[int, Figures]:
    """Return the figures of the fastest rounds."""
    of_each = {streams: map(Figures.of, rounds) for streams, rounds in runs.items()}
    return {
        streams: max(figures, key=attrgetter("tokens_per_s"))
        for streams, figures in of_each.items()
    }


def _answers(runs: Runs) -> dict[int, list[TimedAnswer]]:
    """Return the answers of the first rounds, because greedy answers don't depend on the round."""
    return {streams: list(chain.from_iterable(rounds[0])) for streams, rounds in runs.items()}


def _margins(plan: EnginePlan, comparisons: Mapping[str, Agreement]) -> dict[str, list[float]]:
    flips = list({flip for comparison in comparisons.values() for flip in comparison.flips})
    margin_of = {}
    if flips:
        with processes(1) as process:
            margins = process.submit(margins_nats, plan, flips).result()
        margin_of = dict(zip(flips, margins, strict=True))
    return {
        name: [margin_of[flip] for flip in comparison.flips]
        for name, comparison in comparisons.items()
    }

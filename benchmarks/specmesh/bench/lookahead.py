"""``specmesh bench lookahead``: drafts of every fixed length against adaptive ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Annotated, Any

import typer
from rich.table import Table

from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.local.mesh import MeshOptions
from specmesh.cli.local.model_options import PairOptions
from specmesh.cli.local.options import RedisUrl, Threads
from specmesh.orchestrator.strategies.options import StrategyOptions
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.bench import Bench, Surroundings, conduct
from specmesh.tools.kit.experiment import (
    AUTOREGRESSIVE,
    SPECULATIVE,
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

LOOKAHEADS = (1, 2, 3, 4, 5, 6, 8, 10)
_PLAIN = Speculation(AUTOREGRESSIVE)

app = App()


@app.command()
def main(
    *,
    pair: PairOptions,
    asked: ExperimentOptions,
    lookahead: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            max=64,
            help="Fixed lookahead to run. May be repeated.",
            show_default=", ".join(map(str, LOOKAHEADS)),
        ),
    ] = None,
    threads: Threads = 1,
    redis_url: RedisUrl = None,
    json_: Json = False,
) -> None:
    """Run speculative decoding with drafts of fixed lengths, and with drafts that end once going on
    doesn't pay, on the same prompts in turn.

    Exits with 1 if their texts differ.
    """

    def make(surroundings: Surroundings) -> LookaheadBench:
        models = pair.real_models(threads)
        options = MeshOptions(models=models, threads=threads, redis_url=redis_url, drain_s=1.0)
        experiment = asked.experiment(speculations(tuple(dict.fromkeys(lookahead or LOOKAHEADS))))
        return LookaheadBench(experiment, options, surroundings)

    conduct(make, as_json=json_)


def speculations(lookaheads: Sequence[int]) -> tuple[Speculation, ...]:
    """Return autoregressive decoding as the baseline, each fixed lookahead, and the adaptive
    one."""
    fixed = (Speculation(SPECULATIVE, StrategyOptions(lookahead=each)) for each in lookaheads)
    return (_PLAIN, *fixed, Speculation(SPECULATIVE))


class LookaheadBench(Bench):
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
        contests = [contest(runs, each) for each in self._experiment.temperatures]
        for each in contests:
            self.console.print(contest_table(each))
            self.say(describe_outcome(each))
            if not each.identical:
                self.say(describe_difference(each))
        identical = all(each.identical for each in contests)
        setting = setting_json(self, self._experiment)
        del setting["speculation"]  # It is keyed by strategy, of which there is only one here.
        return 0 if identical else ExitStatus.FAILED, {
            **setting,
            "identical": identical,
            "temperatures": list(map(contest_json, contests)),
        }


@dataclass(frozen=True, slots=True)
class LookaheadFigures:
    """Speculative decoding with one lookahead at one temperature."""

    lookahead: int | None
    """Length of every draft; None if it adapts."""
    tokens_per_s: float
    """The tokens of all prompts over the time of all prompts."""
    median_tokens_per_s: float
    """Median over the prompts."""
    speedup: float
    """``tokens_per_s`` over that of autoregressive decoding."""
    drafted_per_verify: float
    accepted_per_verify: float
    differing_prompts: tuple[int, ...]
    """Prompts whose answers differ from those of autoregressive decoding in any token."""


@dataclass(frozen=True, slots=True)
class Contest:
    """All lookaheads at one temperature."""

    temperature: float
    autoregressive_tokens_per_s: float
    fixed: Sequence[LookaheadFigures]
    adaptive: LookaheadFigures

    @property
    def best_fixed(self) -> LookaheadFigures:
        """Return the fastest fixed lookahead, chosen with hindsight from the runs themselves."""
        return max(self.fixed, key=lambda figures: figures.tokens_per_s)

    @property
    def ratio(self) -> float:
        """Return the speed of the adaptive lookahead over that of the best fixed one."""
        return self.adaptive.tokens_per_s / self.best_fixed.tokens_per_s

    @property
    def identical(self) -> bool:
        """Return whether all texts equal those of autoregressive decoding; False reveals a bug."""
        return not any(each.differing_prompts for each in (*self.fixed, self.adaptive))


def contest(runs: Sequence[Run], temperature: float) -> Contest:
    """Summarise the runs at one temperature; each prompt must have been run with every
    speculation."""
    by_speculation: dict[Speculation, list[Run]] = {}
    for run in runs:
        if run.temperature == temperature:
            by_speculation.setdefault(run.speculation, []).append(run)
    plain = by_speculation.pop(_PLAIN)
    figures = [_figures(each.options.lookahead, own, plain) for each, own in by_speculation.items()]
    return Contest(
        temperature,
        tokens_per_s(plain),
        [each for each in figures if each.lookahead is not None],
        next(each for each in figures if each.lookahead is None),
    )


def _figures(lookahead: int | None, runs: Sequence[Run], plain: Sequence[Run]) -> LookaheadFigures:
    stats = [run.result.stats for run in runs]
    num_verify_calls = sum(each.num_verify_calls for each in stats)
    return LookaheadFigures(
        lookahead=lookahead,
        tokens_per_s=tokens_per_s(runs),
        median_tokens_per_s=median(run.tokens_per_s for run in runs),
        speedup=tokens_per_s(runs) / tokens_per_s(plain),
        drafted_per_verify=sum(each.num_drafted_tokens for each in stats) / num_verify_calls,
        accepted_per_verify=sum(each.num_accepted_tokens for each in stats) / num_verify_calls,
        differing_prompts=differing_prompts(by_prompt(runs), by_prompt(plain)),
    )


def contest_table(contest: Contest) -> Table:
    """Return a table for one temperature: speed, and tokens drafted and accepted per round."""
    return table_of(
        f"Temperature {contest.temperature:g}",
        (*contest.fixed, contest.adaptive),
        (
            ("lookahead", _name),
            ("tokens/s", lambda each: f"[bold]{each.tokens_per_s:.1f}"),
            ("median prompt", lambda each: f"{each.median_tokens_per_s:.1f}"),
            ("speed-up", lambda each: f"{each.speedup:.2f}x"),
            ("drafted", lambda each: f"{each.drafted_per_verify:.2f}"),
            ("accepted", lambda each: f"{each.accepted_per_verify:.2f}"),
            ("same", lambda each: same(identical=not each.differing_prompts)),
        ),
    )


def describe_outcome(contest: Contest) -> str:
    """Describe which of the two is faster."""
    return (
        f"Adaptive lookahead is {contest.ratio:.3f} times as fast as the best fixed one, "
        f"{contest.best_fixed.lookahead}."
    )


def describe_difference(contest: Contest) -> str:
    """Describe which prompts have different texts; empty if none has."""
    lines = [
        f"DIFFERENT TEXT at temperature {contest.temperature:g} with lookahead "
        f"{_name(figures)}: prompt " + ", ".join(str(n + 1) for n in figures.differing_prompts)
        for figures in (*contest.fixed, contest.adaptive)
        if figures.differing_prompts
    ]
    return "\n".join(lines)


def contest_json(contest: Contest) -> dict[str, Any]:
    """Return the contest at one temperature as a JSON object."""
    return {
        "temperature": contest.temperature,
        "identical": contest.identical,
        "autoregressive_tokens_per_s": contest.autoregressive_tokens_per_s,
        "fixed": [asdict(figures) for figures in contest.fixed],
        "adaptive": asdict(contest.adaptive),
        "best_fixed": contest.best_fixed.lookahead,
        "ratio": contest.ratio,
    }


def _name(figures: LookaheadFigures) -> str:
    return "adaptive" if figures.lookahead is None else str(figures.lookahead)


if __name__ == "__main__":
    app(prog_name="specmesh bench lookahead")

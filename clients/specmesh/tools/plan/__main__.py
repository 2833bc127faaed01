"""``specmesh plan`` or ``python -m specmesh.tools.plan``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from specmesh.cli.exit_status import ExitStatus
from specmesh.load.results.objectives import Objectives, objectives
from specmesh.load.workload import lengths
from specmesh.serving.process.typer_app import App
from specmesh.simulation.models import AcceptanceRates
from specmesh.tools.kit.options import Json
from specmesh.tools.kit.progress import tracked
from specmesh.tools.kit.strategy_options import GivenOptions, read_options
from specmesh.tools.plan.costs import DRAFTER_MS, HOP_MS, GivenCosts, profiled_rates
from specmesh.tools.plan.report import as_json, table
from specmesh.tools.plan.search import plan
from specmesh.tools.plan.setting import HEADS_DEPTH, PlanSetting, default_objectives
from specmesh.tools.profile.file import read_profile
from specmesh.tools.simulate.options import (
    CORES,
    Seed,
    Workers,
    finite,
    require_drafting,
    strategy_names,
)
from specmesh.tools.simulate.output import show
from specmesh.tools.simulate.parallel import spread

app = App()

ORCHESTRATOR_MS = 3.0
_STRATEGIES = ("autoregressive", "speculative", "dsi")

P = TypeVar("P")


def _by(parse: Callable[[str], P]) -> Callable[[str], P]:
    """Wrap ``parse``, so that the user reads the message of its ValueError."""

    @functools.wraps(parse)
    def wrapped(text: str) -> P:
        try:
            return parse(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return wrapped


def _positive(value: float | None) -> float | None:
    if finite(value) is not None and value is not None and value <= 0:
        raise typer.BadParameter("must be above 0")
    return value


@app.command()
def main(
    rate: Annotated[float, typer.Option(callback=_positive, help="Requests per second (Poisson).")],
    profile: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Profile to take times and acceptance from ('specmesh profile'); options override "
            "it.",
            show_default="none",
        ),
    ] = None,
    temperature: Annotated[
        float,
        typer.Option(min=0, callback=finite, help="Temperature, for the profile's acceptance."),
    ] = 0.0,
    target_ms: Annotated[
        float | None,
        typer.Option(
            callback=_positive,
            help="Time of one target forward, of any batch.",
            show_default="the profile's",
        ),
    ] = None,
    drafter_ms: Annotated[
        float | None,
        typer.Option(
            callback=_positive,
            help="Time of one drafter forward.",
            show_default=f"the profile's, or {DRAFTER_MS:g}",
        ),
    ] = None,
    first_ms: Annotated[
        float | None,
        typer.Option(
            callback=_positive,
            help="Time of a target forward that reads an uncached prompt.",
            show_default="as any other",
        ),
    ] = None,
    heads_ms: Annotated[
        float | None,
        typer.Option(
            callback=_positive,
            help="Time in which the target's heads draft one level.",
            show_default="the profile's, or no heads",
        ),
    ] = None,
    heads_depth: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Maximum number of levels that the heads draft.",
            show_default="the profile's, or 5",
        ),
    ] = None,
    heads_acceptance: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            callback=finite,
            help="Acceptance rate of the heads' tokens.",
            show_default="the profile's, or the drafter's",
        ),
    ] = None,
    target_token_ms: Annotated[
        float | None,
        typer.Option(
            min=0,
            callback=finite,
            help="Additional time for each token in a forward after the first.",
            show_default="the profile's, or a hundredth of --target-ms",
        ),
    ] = None,
    batch: Annotated[
        int,
        typer.Option(min=1, help="Maximum number of calls in a forward; 64 in specmesh's engines."),
    ] = 64,
    acceptance: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            callback=finite,
            help="Acceptance rate of draft tokens.",
            show_default="the profile's, or 0.8",
        ),
    ] = None,
    output: Annotated[
        lengths.Length,
        typer.Option(
            parser=_by(lengths.length),
            metavar="LENGTH",
            help=f"Tokens per answer: {lengths.FORMS}.",
        ),
    ] = "128",  # type: ignore[assignment]
    slo: Annotated[
        Objectives | None,
        typer.Option(
            parser=_by(objectives),
            metavar="BOUNDS",
            help="Latency objectives, such as ttft=500ms,tpot=50ms,e2e=10s.",
            show_default="TTFT within 4 first forwards, TPOT within 1.5 forwards",
        ),
    ] = None,
    attain: Annotated[
        float,
        typer.Option(
            min=0.01, max=1, callback=finite, help="Share of answers that must meet the objectives."
        ),
    ] = 0.95,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            callback=strategy_names,
            help="Strategy to plan for. May be repeated.",
            show_default=", ".join(_STRATEGIES),
        ),
    ] = None,
    option: GivenOptions = None,
    hop_ms: Annotated[
        float | None,
        typer.Option(
            min=0,
            callback=finite,
            help="One-way latency between processes.",
            show_default=f"the profile's, or {HOP_MS:g}",
        ),
    ] = None,
    orchestrator_ms: Annotated[
        float | None,
        typer.Option(
            min=0,
            callback=finite,
            help="CPU time of an orchestrator per verification.",
            show_default=f"the profile's, or {ORCHESTRATOR_MS:g}",
        ),
    ] = None,
    drafter_cost: Annotated[
        float, typer.Option(min=0, callback=finite, help="Cost of a drafter, in verifiers.")
    ] = 0.1,
    seed: Seed = 0,
    workers: Workers = CORES,
    json_: Json = False,
) -> None:
    """Find how many verifiers and drafters a load needs, by simulation.

    For each strategy it prints the smallest mesh that meets the objectives with stable queues, and
    why one verifier less is not enough. The simulation runs the real strategies on a virtual clock,
    against replicas that serve calls first come, first served, and have a machine each. Exits with
    1 if no mesh meets the objectives.
    """
    names = strategy or list(_STRATEGIES)
    read = None if profile is None else read_profile(profile, "--profile")
    if read is None and target_ms is None:
        raise typer.BadParameter("is required without --profile", param_hint="--target-ms")
    costs = GivenCosts(
        target_ms=target_ms,
        target_token_ms=target_token_ms,
        first_ms=first_ms,
        drafter_ms=drafter_ms,
        heads_ms=heads_ms,
        hop_ms=hop_ms,
    ).over(None if read is None else read.costs)
    require_drafting(names, costs)
    rates = AcceptanceRates() if read is None else profiled_rates(read.acceptance, temperature)
    if acceptance is not None:
        rates = replace(rates, drafter=acceptance)
    if heads_acceptance is not None:
        rates = replace(rates, heads=heads_acceptance)
    if orchestrator_ms is None and not costs.orchestrating:
        orchestrator_ms = ORCHESTRATOR_MS
    setting = PlanSetting(
        costs=costs,
        batch=batch,
        rates=rates,
        heads_depth=heads_depth or (read.heads_depth if read is not None else 0) or HEADS_DEPTH,
        rate=rate,
        output=output,
        objectives=slo or default_objectives(costs),
        attain=attain,
        orchestrator_ms=orchestrator_ms,
        options=read_options(names, option or ()),
        seed=seed,
    )
    planning = spread(functools.partial(plan, setting), names, min(workers, len(names)))
    planned = list(tracked(planning, len(names), "strategies"))
    found = as_json(setting, planned, drafter_cost)
    show(found, json_, lambda _, console: console.print(table(setting, planned, drafter_cost)))
    if all(each.best is None for each in planned):
        raise typer.Exit(ExitStatus.FAILED)


if __name__ == "__main__":
    app(prog_name="specmesh plan")

"""Custom meshes: acceptance modes compared, and requests that share a mesh."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
from specmesh.simulation.costs import Hop, MeshCosts
from specmesh.simulation.law import Law
from specmesh.simulation.mesh import MeshModel
from specmesh.simulation.models import AcceptanceRates
from specmesh.tools.kit.options import Json
from specmesh.tools.kit.progress import tracked
from specmesh.tools.kit.strategy_options import GivenOptions, read_options
from specmesh.tools.simulate import modes as acceptance_modes
from specmesh.tools.simulate import report
from specmesh.tools.simulate.load import SimulatedLoad, run_load
from specmesh.tools.simulate.options import (
    CORES,
    MAX_TOKENS,
    HopMs,
    Repeats,
    Seed,
    Tokens,
    Verifiers,
    Workers,
    finite,
    law,
    require_drafting,
    strategy_names,
)
from specmesh.tools.simulate.output import show


def modes(
    target_ms: Annotated[
        float, typer.Option(min=1e-6, callback=finite, help="Time of one target forward.")
    ] = 1000.0,
    drafter_ms: Annotated[
        float, typer.Option(min=1e-6, callback=finite, help="Time of one drafter forward.")
    ] = 100.0,
    verifiers: Verifiers = 7,
    tokens: Tokens = 100,
    repeats: Repeats = 21,
    seed: Seed = 0,
    workers: Workers = CORES,
    json_: Json = False,
) -> None:
    """Compare every strategy in every acceptance mode, for drafters of various similarity to the
    target."""
    setting = acceptance_modes.ModesSetting(
        *(target_ms, drafter_ms, verifiers, tokens, range(seed, seed + repeats))
    )
    results = acceptance_modes.run_modes(setting, workers)
    found = {
        "target_ms": target_ms,
        "drafter_ms": drafter_ms,
        "num_verifiers": verifiers,
        "num_tokens": tokens,
        "num_seeds": repeats,
        "rows": list(tracked(results, len(acceptance_modes.rows()), "rows")),
    }
    show(found, json_, report.modes)


def run_mesh(
    target_ms: Annotated[
        float | None, typer.Option(callback=finite, help="Time of one target forward.")
    ] = None,
    drafter_ms: Annotated[
        float | None, typer.Option(callback=finite, help="Time of one drafter forward.")
    ] = None,
    heads_ms: Annotated[
        float | None,
        typer.Option(
            min=0, callback=finite, help="Time in which the target's heads draft one level."
        ),
    ] = None,
    heads_acceptance: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            callback=finite,
            help="Acceptance rate of the heads' tokens; default: the drafter's.",
        ),
    ] = None,
    target_token_ms: Annotated[
        float,
        typer.Option(
            min=0, callback=finite, help="Additional time of a target forward per draft token."
        ),
    ] = 0.0,
    target_histogram: Annotated[
        Path | None, typer.Option(help='JSON file of times instead: {"SECONDS": count}.')
    ] = None,
    drafter_histogram: Annotated[
        Path | None, typer.Option(help="The same for the drafter.")
    ] = None,
    acceptance: Annotated[
        float,
        typer.Option(min=0, max=1, callback=finite, help="Acceptance rate of draft tokens."),
    ] = 0.8,
    runner_up: Annotated[
        float,
        typer.Option(
            min=0, max=1, callback=finite, help="P(second choice is right | first is not)."
        ),
    ] = 0.5,
    strategy: Annotated[
        list[str] | None,
        typer.Option(callback=strategy_names, help="Strategy to simulate. May be repeated."),
    ] = None,
    verifiers: Verifiers = 1,
    option: GivenOptions = None,
    tokens: Tokens = 50,
    requests: Annotated[
        int, typer.Option(min=1, max=MAX_TOKENS, help="Number of answers to simulate.")
    ] = 1,
    rate: Annotated[
        float | None,
        typer.Option(
            callback=finite, help="Requests per second (Poisson); default: all start together."
        ),
    ] = None,
    hop_ms: HopMs = 0.0,
    seed: Seed = 0,
    json_: Json = False,
) -> None:
    """Simulate a custom mesh: latency, throughput, waste, utilisation."""
    target = law("target", target_ms, target_histogram, target_token_ms)
    names = strategy or ["dsi"]
    options = read_options(names, option or ())
    needs_drafter = any(STRATEGIES[name].needs_drafter for name in names)
    given = drafter_ms is not None or drafter_histogram is not None
    drafters = (law("drafter", drafter_ms, drafter_histogram),) if needs_drafter or given else ()
    if rate is not None and rate <= 0:
        raise typer.BadParameter("must be above 0", param_hint="--rate")
    heads, hop = None if heads_ms is None else Law.fixed(heads_ms), Hop(2 * hop_ms)
    costs = MeshCosts(target, drafters, heads, hop, hop)
    require_drafting(names, costs)
    model = MeshModel(costs, verifiers)
    rates = AcceptanceRates(acceptance, runner_up, heads_acceptance)
    found = {
        "num_verifiers": verifiers,
        "num_requests": requests,
        "strategies": {
            name: asdict(
                run_load(
                    SimulatedLoad(
                        *(name, Goal(tokens, **asdict(options[name])), requests, rate),
                        *(rates, seed),
                    ),
                    model,
                )
            )
            for name in names
        },
    }
    show(found, json_, report.load)

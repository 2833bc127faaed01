"""Custom meshes: acceptance modes compared, and requests that share a mesh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
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
    request_rate,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomMesh:
    """A mesh of one's own choice, and its load."""

    target_ms: Annotated[
        float | None, typer.Option(callback=finite, help="Time of one target forward.")
    ] = None
    drafter_ms: Annotated[
        float | None, typer.Option(callback=finite, help="Time of one drafter forward.")
    ] = None
    heads_ms: Annotated[
        float | None,
        typer.Option(
            min=0, callback=finite, help="Time in which the target's heads draft one level."
        ),
    ] = None
    heads_acceptance: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            callback=finite,
            help="Acceptance rate of the heads' tokens; default: the drafter's.",
        ),
    ] = None
    target_token_ms: Annotated[
        float,
        typer.Option(
            min=0, callback=finite, help="Additional time of a target forward per draft token."
        ),
    ] = 0.0
    target_histogram: Annotated[
        Path | None, typer.Option(help='JSON file of times instead: {"SECONDS": count}.')
    ] = None
    drafter_histogram: Annotated[Path | None, typer.Option(help="The same for the drafter.")] = None
    acceptance: Annotated[
        float,
        typer.Option(min=0, max=1, callback=finite, help="Acceptance rate of draft tokens."),
    ] = 0.8
    runner_up: Annotated[
        float,
        typer.Option(
            min=0, max=1, callback=finite, help="P(second choice is right | first is not)."
        ),
    ] = 0.5
    strategy: Annotated[
        list[str] | None,
        typer.Option(callback=strategy_names, help="Strategy to simulate. May be repeated."),
    ] = None
    verifiers: Verifiers = 1
    option: GivenOptions = None
    tokens: Tokens = 50
    requests: Annotated[
        int, typer.Option(min=1, max=MAX_TOKENS, help="Number of answers to simulate.")
    ] = 1
    rate: Annotated[
        float | None,
        typer.Option(
            callback=request_rate,
            help="Requests per second (Poisson); default: all start together.",
        ),
    ] = None
    hop_ms: HopMs = 0.0
    seed: Seed = 0

    @property
    def strategies(self) -> Sequence[str]:
        """The names of the strategies to simulate."""
        return self.strategy or ("dsi",)

    def loads(self) -> Mapping[str, SimulatedLoad]:
        """Return the load of each strategy. Raises BadParameter."""
        if self.rate is not None and self.rate <= 0:
            raise typer.BadParameter("must be above 0", param_hint="--rate")
        options = read_options(self.strategies, self.option or ())
        rates = AcceptanceRates(self.acceptance, self.runner_up, self.heads_acceptance)
        return {
            name: SimulatedLoad(
                *(name, Goal(self.tokens, **asdict(options[name])), self.requests, self.rate),
                *(rates, self.seed),
            )
            for name in self.strategies
        }

    def model(self) -> MeshModel:
        """Return the mesh. Its orchestrator measures if answers share the mesh, since it can only
        know by measuring how long they wait for each other. A single answer shows what a mesh does
        that is known already. Raises BadParameter."""
        target = law("target", self.target_ms, self.target_histogram, self.target_token_ms)
        heads = None if self.heads_ms is None else Law.fixed(self.heads_ms)
        hop = Hop(2 * self.hop_ms)
        costs = MeshCosts(target, self._drafters(), heads, hop, hop)
        require_drafting(self.strategies, costs)
        return MeshModel(costs, self.verifiers, measures=self.requests > 1)

    def _drafters(self) -> tuple[Law, ...]:
        given = self.drafter_ms is not None or self.drafter_histogram is not None
        if not given and not any(STRATEGIES[name].needs_drafter for name in self.strategies):
            return ()
        return (law("drafter", self.drafter_ms, self.drafter_histogram),)


def run_mesh(*, mesh: CustomMesh, json_: Json = False) -> None:
    """Simulate a custom mesh: latency, throughput, waste, utilisation."""
    model, loads = mesh.model(), mesh.loads()
    found = {
        "num_verifiers": mesh.verifiers,
        "num_requests": mesh.requests,
        "strategies": {name: asdict(run_load(load, model)) for name, load in loads.items()},
    }
    show(found, json_, report.load)

"""The options of ``specmesh plan``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from specmesh.load.commands.parsing import parsed_by
from specmesh.load.results.objectives import Objectives, objectives
from specmesh.load.workload import lengths
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.simulation.models import AcceptanceRates
from specmesh.tools.kit.experiment import SPECULATIVE
from specmesh.tools.kit.strategy_options import GivenOptions, read_options
from specmesh.tools.plan.costs import GivenCosts, profiled_rates
from specmesh.tools.plan.setting import HEADS_DEPTH, PlanSetting, default_objectives
from specmesh.tools.profile.file import Profile, read_profile
from specmesh.tools.simulate.options import (
    Seed,
    finite,
    request_rate,
    require_drafting,
    strategy_names,
)

ORCHESTRATOR_MS = 1.0
FURTHER_MS = 0.3
"""Somewhat more than ``specmesh bench capacity`` measures with metrics and without tracing: about
0.8 for a verification and its draft, and up to 0.25 for a further token (docs/measurements.md)."""
_STRATEGIES = ("autoregressive", "speculative", "dsi")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The load, the costs of the models, and the strategies to plan for."""

    rate: Annotated[
        float, typer.Option(callback=request_rate, help="Requests per second (Poisson).")
    ]
    profile: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Profile to take times and acceptance from ('specmesh profile'); options override "
            "it.",
            show_default="none",
        ),
    ] = None
    temperature: Annotated[
        float,
        typer.Option(min=0, callback=finite, help="Temperature, for the profile's acceptance."),
    ] = 0.0
    costs: GivenCosts
    heads_depth: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Maximum number of levels that the heads draft.",
            show_default="the profile's, or 5",
        ),
    ] = None
    heads_acceptance: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            callback=finite,
            help="Acceptance rate of the heads' tokens.",
            show_default="the profile's, or the drafter's",
        ),
    ] = None
    batch: Annotated[
        int,
        typer.Option(min=1, help="Maximum number of calls in a forward; 64 in specmesh's engines."),
    ] = 64
    acceptance: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            callback=finite,
            help="Acceptance rate of draft tokens.",
            show_default="the profile's, or 0.8",
        ),
    ] = None
    output: Annotated[
        lengths.Length,
        typer.Option(
            parser=parsed_by(lengths.length),
            metavar="LENGTH",
            help=f"Tokens per answer: {lengths.FORMS}.",
        ),
    ] = "128"  # type: ignore[assignment]
    slo: Annotated[
        Objectives | None,
        typer.Option(
            parser=parsed_by(objectives),
            metavar="BOUNDS",
            help="Latency objectives, such as ttft=500ms,tpot=50ms,e2e=10s.",
            show_default="TTFT within 4 first forwards, TPOT within 1.5 forwards",
        ),
    ] = None
    attain: Annotated[
        float,
        typer.Option(
            min=0.01, max=1, callback=finite, help="Share of answers that must meet the objectives."
        ),
    ] = 0.95
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            callback=strategy_names,
            help="Strategy to plan for. May be repeated.",
            show_default=", ".join(_STRATEGIES),
        ),
    ] = None
    option: GivenOptions = None
    orchestrator_ms: Annotated[
        float | None,
        typer.Option(
            min=0,
            callback=finite,
            help="CPU time of an orchestrator per verification and its draft. The default is what "
            "'specmesh bench capacity' measures without tracing, and a reserve.",
            show_default=f"the profile's, or {ORCHESTRATOR_MS:g}",
        ),
    ] = None
    further_ms: Annotated[
        float | None,
        typer.Option(
            min=0,
            callback=finite,
            help="The same per further token, which the target decodes without a request.",
            show_default=f"the profile's, or {FURTHER_MS:g}",
        ),
    ] = None
    drafter_cost: Annotated[
        float, typer.Option(min=0, callback=finite, help="Cost of a drafter, in verifiers.")
    ] = 0.1
    seed: Seed = 0

    @property
    def strategies(self) -> Sequence[str]:
        """The names of the strategies."""
        return self.strategy or _STRATEGIES

    def setting(self) -> PlanSetting:
        """Return the setting of the plan. Raises BadParameter."""
        read = None if self.profile is None else read_profile(self.profile, "--profile")
        if read is None and self.costs.target_ms is None:
            raise typer.BadParameter("is required without --profile", param_hint="--target-ms")
        costs = self.costs.over(None if read is None else read.costs)
        require_drafting(self.strategies, costs)
        orchestrator_ms, further_ms = self.orchestrator_ms, self.further_ms
        if not costs.orchestrating:
            orchestrator_ms = ORCHESTRATOR_MS if orchestrator_ms is None else orchestrator_ms
            further_ms = FURTHER_MS if further_ms is None else further_ms
        measured_depth = read.heads_depth if read is not None else 0
        return PlanSetting(
            costs=costs,
            batch=self.batch,
            rates=self._rates(read),
            heads_depth=self.heads_depth or measured_depth or HEADS_DEPTH,
            rate=self.rate,
            output=self.output,
            objectives=self.slo or default_objectives(costs),
            attain=self.attain,
            orchestrator_ms=orchestrator_ms,
            further_ms=further_ms,
            options=read_options(self.strategies, self.option or ()),
            seed=self.seed,
        )

    def _require_acceptance(self, read: Profile) -> None:
        """Raise BadParameter if the acceptance of drafts is neither given nor measured."""
        drafts = any(STRATEGIES[name].needs_drafter for name in self.strategies)
        measured = any(each.way.strategy == SPECULATIVE for each in read.acceptance)
        if drafts and not measured and self.acceptance is None:
            raise typer.BadParameter("is required: the profile has none", param_hint="--acceptance")

    def _rates(self, read: Profile | None) -> AcceptanceRates:
        if read is None:
            rates = AcceptanceRates()
        else:
            self._require_acceptance(read)
            rates = profiled_rates(read.acceptance, self.temperature)
        if self.acceptance is not None:
            rates = replace(rates, drafter=self.acceptance)
        if self.heads_acceptance is not None:
            rates = replace(rates, heads=self.heads_acceptance)
        return rates

"""The costs and the acceptance of a plan: what the user gave, or else what a profile measured."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Annotated

import typer

from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
from specmesh.simulation.costs import Hop, MeshCosts
from specmesh.simulation.law import ForwardShape, Law
from specmesh.simulation.mesh import MeshModel
from specmesh.simulation.models import AcceptanceRates
from specmesh.simulation.run import simulate
from specmesh.tools.kit.experiment import HEADS, SPECULATIVE
from specmesh.tools.profile.choose import nearest
from specmesh.tools.profile.rounds import ProfiledAcceptance
from specmesh.tools.simulate.options import finite, positive

DRAFTER_MS = 3.0
HOP_MS = 0.5
"""Defaults without a profile; ``HOP_MS`` is one way."""
TOKEN_SHARE = 0.01
"""Default of the time that a token adds, as a share of a forward's."""
_FITTED_TOKENS = 1000
_EQUAL = MeshCosts.fixed(1.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenCosts:
    """The times in milliseconds that the user gave."""

    target_ms: Annotated[
        float | None,
        typer.Option(
            callback=positive,
            help="Time of one target forward, of any batch.",
            show_default="the profile's",
        ),
    ] = None
    target_token_ms: Annotated[
        float | None,
        typer.Option(
            min=0,
            callback=finite,
            help="Additional time for each token in a forward after the first.",
            show_default="the profile's, or a hundredth of --target-ms",
        ),
    ] = None
    first_ms: Annotated[
        float | None,
        typer.Option(
            callback=positive,
            help="Time of a target forward that reads an uncached prompt.",
            show_default="as any other",
        ),
    ] = None
    drafter_ms: Annotated[
        float | None,
        typer.Option(
            callback=positive,
            help="Time of one drafter forward.",
            show_default=f"the profile's, or {DRAFTER_MS:g}",
        ),
    ] = None
    heads_ms: Annotated[
        float | None,
        typer.Option(
            callback=positive,
            help="Time in which the target's heads draft one level.",
            show_default="the profile's, or no heads",
        ),
    ] = None
    hop_ms: Annotated[
        float | None,
        typer.Option(
            min=0,
            callback=finite,
            help="One-way latency between processes.",
            show_default=f"the profile's, or {HOP_MS:g}",
        ),
    ] = None

    def over(self, measured: MeshCosts | None) -> MeshCosts:
        """Return ``measured``, or the defaults, with what was given instead. Without ``measured``,
        ``target_ms`` must be given."""
        if measured is None:
            assert self.target_ms is not None
            measured = MeshCosts.fixed(self.target_ms, DRAFTER_MS, hop_ms=HOP_MS)
        costs = replace(measured, target=self._target(measured.target))
        if self.drafter_ms is not None:
            costs = replace(costs, drafters=(Law.fixed(self.drafter_ms),))
        if self.heads_ms is not None:
            costs = replace(costs, heads=Law.fixed(self.heads_ms))
        if self.hop_ms is not None:
            hop = Hop(2 * self.hop_ms)
            costs = replace(costs, verify_hop=hop, draft_hop=hop)
        return costs

    def _target(self, law: Law) -> Law:
        if self.target_ms is not None or self.target_token_ms is not None:
            each_ms = law.ms(ForwardShape()) if self.target_ms is None else self.target_ms
            token_ms = self.target_token_ms
            law = Law.fixed(each_ms, each_ms * TOKEN_SHARE if token_ms is None else token_ms)
        if self.first_ms is not None:
            law = replace(law, prompt_ms=self.first_ms - law.ms(ForwardShape()))
        return law


def profiled_rates(
    acceptances: Sequence[ProfiledAcceptance], temperature: float
) -> AcceptanceRates:
    """Return the rates with which the simulated strategies make as many tokens per round as the
    real ones did, at the nearest measured temperature: ``speculative`` for the drafter, ``heads``
    for heads. Where none was measured, they are the default ones."""
    near = nearest(acceptances, temperature)
    usual = AcceptanceRates()
    drafter = _fitted([each for each in near if each.way.strategy == SPECULATIVE])
    heads = _fitted([each for each in near if each.way.strategy == HEADS])
    return replace(usual, drafter=usual.drafter if drafter is None else drafter, heads=heads)


def _fitted(made: Sequence[ProfiledAcceptance]) -> float | None:
    if not made:
        return None
    wanted = fmean(each.tokens for each in made)

    def tokens(percent: int) -> float:
        return fmean(_tokens_per_round(each, percent / 100) for each in made)

    return min(bisect_left(range(101), wanted, key=tokens), 100) / 100


def _tokens_per_round(made: ProfiledAcceptance, rate: float) -> float:
    way = made.way
    goal = Goal(_FITTED_TOKENS, lookahead=way.lookahead, width=way.width)
    models = AcceptanceRates(rate, heads=rate).models(seed=0)
    answered = simulate(STRATEGIES[way.strategy](goal), models, MeshModel(_EQUAL))
    return _FITTED_TOKENS / answered.num_verify_calls

"""The measurement of a mesh: times by setting, contention, hops, acceptance, and answers through
the orchestrator.

Each of these gets a share of the given time. Work that can't be cut (the target's own answers,
drafts along them) comes on top, so a slow mesh takes longer than requested.
"""

from __future__ import annotations

import asyncio
import math
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from specmesh.cli.local.cores import Placement
from specmesh.client import AsyncClient
from specmesh.simulation.costs import Contention, Cores, Hop
from specmesh.tools.profile.accepting import Acceptances
from specmesh.tools.profile.choose import ways
from specmesh.tools.profile.file import Accuracy, Profile, ProfiledModel
from specmesh.tools.profile.law import Fit
from specmesh.tools.profile.measure.replicas import Replica, Replicas
from specmesh.tools.profile.measure.settings import contexts, drafts, heads_drafts, verifications
from specmesh.tools.profile.measure.timing import (
    CallTimer,
    contention,
    drafting,
    heads_drafting,
    verifying,
)
from specmesh.tools.profile.measure.watch import CoreWatch
from specmesh.tools.profile.rounds import ProfiledAcceptance, ProfiledCosts
from specmesh.tools.profile.tries.refine import Tries

TARGET, DRAFTER, HEADS = "target", "drafter", "heads"
SHARES: Mapping[str, float] = {TARGET: 0.36, DRAFTER: 0.24, HEADS: 0.32, "contention": 0.08}
"""Shares of the time for timing."""
TIMING, ACCEPTING, OBSERVING, REFINING = 0.25, 0.1, 0.1, 0.55
"""Shares of the total time: for timing, for the acceptance of all ways of decoding, for answers
through the orchestrator to fit to, and for more tries of the leading ways."""
NUM_PROMPTS = 128
NUM_TOKENS = 64
"""Defaults: the number of prompts, and the length of each answer along which drafts are made."""
SECONDS = 720.0
"""Default of the approximate time to measure."""


@dataclass(frozen=True, slots=True)
class ProfilePlan:
    """The extent of a measurement, and its time."""

    prompts: Sequence[str]
    temperatures: Sequence[float]
    num_tokens: int
    """Length of each answer along which drafts are made."""
    seconds: float
    seed: int
    placement: Placement | None = None
    """Placement of the processes of a mesh on this machine."""


async def measure(
    replicas: Replicas,
    orchestrator: AsyncClient | None,
    plan: ProfilePlan,
    say: Callable[[str], None],
) -> Profile:
    """Measure the mesh, reporting progress through ``say``. Raises StartError, SpecmeshError.

    If it is cancelled after every way of decoding has been tried, it returns what it has, a profile
    that is not ``complete``.
    """
    began = time.monotonic()
    timers = await _timed(replicas, plan, say)
    fits = {role: timer.fit() for role, timer in timers.items() if timer.samples()}
    costs = _costs(timers, fits, await _contention(replicas, plan, say))
    if plan.placement is not None:
        costs = replace(costs, cores=_cores(replicas, plan.placement))
    tried = await _tried(replicas, orchestrator, costs, plan, say)
    return Profile(
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        machine={
            "platform": platform.platform(),
            "processor": platform.processor() or platform.machine(),
            "cores": str(os.cpu_count()),
            "load": " ".join(f"{each:.2f}" for each in os.getloadavg()),
        },
        seed=plan.seed,
        seconds=round(time.monotonic() - began, 1),
        models=_models(replicas),
        costs=tried.costs,
        accuracy={role: _accuracy(fit) for role, fit in fits.items()},
        acceptance=tried.acceptance,
        complete=tried.complete,
        samples={role: fit.samples for role, fit in fits.items()},
    )


async def _timed(
    replicas: Replicas, plan: ProfilePlan, say: Callable[[str], None]
) -> dict[str, CallTimer]:
    seed, verifier = plan.seed, replicas.verifier
    limit = verifier.info.context_tokens
    work = {TARGET: (verifying(verifier, seed), verifications(limit))}
    if replicas.drafter is not None:
        drafter = replicas.drafter
        own = drafts(drafter.info.context_tokens or limit, drafter.draft_widths)
        work[DRAFTER] = (drafting(drafter, seed), own)
    if replicas.heads_depth:
        work[HEADS] = (heads_drafting(verifier, seed), heads_drafts(limit, replicas.heads_depth))
    given = sum(SHARES[role] for role in work) + SHARES["contention"]
    for role, (timer, settings) in work.items():
        seconds = plan.seconds * TIMING * SHARES[role] / given
        say(f"{role}: {len(settings)} settings, {seconds:.0f} s")
        await timer.measure(settings, seconds, seed)
    return {role: timer for role, (timer, _) in work.items()}


async def _contention(
    replicas: Replicas, plan: ProfilePlan, say: Callable[[str], None]
) -> Contention:
    if replicas.drafter is None:
        return Contention()
    seconds = plan.seconds * TIMING * SHARES["contention"]
    say(f"target and drafter together, {seconds:.0f} s")
    context = contexts(replicas.verifier.info.context_tokens)[0]
    return await contention(replicas, context, seconds, plan.seed)


def _costs(
    timers: Mapping[str, CallTimer], fits: Mapping[str, Fit], contention: Contention
) -> ProfiledCosts:
    drafter, heads = fits.get(DRAFTER), fits.get(HEADS)
    return ProfiledCosts(
        target=fits[TARGET].law,
        drafters=() if drafter is None else (drafter.law,),
        heads=None if heads is None else heads.law,
        verify_hop=timers[TARGET].hop(),
        draft_hop=Hop() if drafter is None else timers[DRAFTER].hop(),
        contention=contention,
    )


def _cores(replicas: Replicas, placement: Placement) -> dict[str, Cores]:
    """Return the cores that each role may use."""
    found = {
        TARGET: Cores(tuple(sorted(placement.verifiers[0])), max(1, replicas.verifier.threads)),
        "orchestrator": Cores(tuple(sorted(placement.rest))),
    }
    if replicas.drafter is not None:
        own = tuple(sorted(placement.drafter))
        found[DRAFTER] = Cores(own, max(1, replicas.drafter.threads))
    return {role: cores for role, cores in found.items() if cores.numbers}


@dataclass(slots=True)
class _Tried:
    """The acceptance of ways of decoding, and costs that include the orchestrator's time."""

    acceptance: list[ProfiledAcceptance]
    costs: ProfiledCosts
    complete: bool


async def _tried(
    replicas: Replicas,
    orchestrator: AsyncClient | None,
    costs: ProfiledCosts,
    plan: ProfilePlan,
    say: Callable[[str], None],
) -> _Tried:
    """Try ways of decoding until time is up or it is cancelled."""
    candidates = ways(drafter=replicas.drafter is not None, heads_depth=replicas.heads_depth)
    accepted = await Acceptances.on(replicas, plan.prompts, plan.num_tokens, plan.seed, say)
    tried = _Tried([], costs, complete=False)
    try:
        until = time.monotonic() + plan.seconds * ACCEPTING
        while candidates and not accepted.exhausted:
            await accepted.measure(dict.fromkeys(plan.temperatures, candidates))
            if time.monotonic() >= until:
                break
        if orchestrator is not None:
            async with CoreWatch.of(costs) as cores:
                given = (plan.prompts, plan.num_tokens, plan.seed, say)
                tries = Tries(orchestrator, cores, accepted, *given)
                tried.costs = await tries.fit(costs, plan.temperatures, plan.seconds * OBSERVING)
                tried.costs = await tries.refine(
                    tried.costs, plan.temperatures, plan.seconds * REFINING
                )
        tried.complete = True
    except asyncio.CancelledError:
        if not accepted.num_prompts:
            raise
    tried.acceptance = accepted.means()
    return tried


def _models(replicas: Replicas) -> dict[str, ProfiledModel]:
    roles = {TARGET: replicas.verifier, DRAFTER: replicas.drafter}
    return {role: _model(each) for role, each in roles.items() if each is not None}


def _model(replica: Replica) -> ProfiledModel:
    info = replica.info
    return ProfiledModel(
        name=info.name,
        digest=info.weights_digest,
        dtype=info.dtype,
        backend=info.backend,
        heads_depth=info.heads_depth,
        threads=replica.threads,
    )


def _accuracy(fit: Fit) -> Accuracy:
    errors = sorted(fit.errors)
    return Accuracy(
        median=fit.median_error,
        p90=errors[math.ceil(0.9 * (len(errors) - 1))] if errors else None,
        num_settings=len(fit.samples),
        num_held_out=len(errors),
    )

"""``specmesh load search``: the highest rate at which the objectives are met."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from specmesh.cli.exit_status import ExitStatus
from specmesh.load.commands.asked import arrivals_at, plan_of
from specmesh.load.commands.inapplicable import refuse_inapplicable
from specmesh.load.commands.options import LoadOptions
from specmesh.load.commands.parsing import finite_rate
from specmesh.load.commands.session import RunSession, carry_out, in_words
from specmesh.load.commands.sweep import point
from specmesh.load.results.report import Point, RunSetting, SearchReport
from specmesh.load.results.tables import show_points
from specmesh.load.runs.bisection import Bisection
from specmesh.load.transports.transport import RequestFailed

_NOTHING_DUE = "NOTHING_DUE"


def search(
    context: typer.Context,
    first_rate: Annotated[
        float,
        typer.Option(
            "--from",
            min=1e-3,
            callback=finite_rate,
            help="First rate to try, in conversations per second.",
        ),
    ] = 1.0,
    *,
    asked: LoadOptions,
    share: Annotated[
        float,
        typer.Option(
            min=0.01,
            max=1,
            help="Share of the requests that must meet the objectives.",
            rich_help_panel="Results",
        ),
    ] = 0.95,
    within: Annotated[
        float,
        typer.Option(
            min=0.005,
            max=1,
            help="Stop once the lowest failing rate exceeds the highest passing one by at most "
            "this share.",
            rich_help_panel="Results",
        ),
    ] = 0.05,
) -> None:
    """Find the highest rate that meets the objectives, by bisection."""
    refuse_inapplicable(context, asked)
    if asked.results.objectives is None:
        raise typer.BadParameter(
            "a search requires the objectives that the rate must meet", param_hint="--slo"
        )
    plan = plan_of(asked, first_rate)
    session = RunSession(asked.results)
    bisection = Bisection(first_rate, within)

    async def work() -> int:
        points: list[Point] = []
        setting: RunSetting | None = None
        with session.adding_to(points):
            while (rate := bisection.next_rate) is not None and not session.stopped:
                at_rate = replace(plan.workload, arrivals=arrivals_at(asked, rate))
                done = await session.run(replace(plan, workload=at_rate), f"{rate:.3g}/s")
                setting = setting or session.setting(done.plan)
                if done.result.interrupted:
                    break
                points.append(point(rate, {}, session.setting(done.plan), done.result, share))
                if points[-1].meets is None:
                    raise RequestFailed(_NOTHING_DUE, _too_short(rate))
                bisection.tried(rate, met=points[-1].meets)
        assert setting is not None, "a search tries at least one rate"
        points.sort(key=lambda each: each.rate)
        return _conclude(session, setting, points, bisection, share)

    carry_out(work, plan.door)


def _conclude(
    session: RunSession,
    setting: RunSetting,
    points: list[Point],
    bisection: Bisection,
    share: float,
) -> ExitStatus:
    """Write and print what was found; return the exit status."""
    session.write(
        SearchReport(
            setting=setting,
            share=share,
            highest_rate=bisection.highest_met,
            lowest_missed_rate=bisection.lowest_missed,
            points=points,
            failure=in_words(session.failure),
            interrupted=session.stopped,
        )
    )
    show_points(session.console, points)
    _say(session, bisection, share)
    return session.status(ExitStatus.FAILED if bisection.highest_met is None else ExitStatus.OK)


def _too_short(rate: float) -> str:
    return (
        f"at {rate:.3g} a second no request was due that was not cancelled: "
        "--duration is too short for this rate"
    )


def _say(session: RunSession, bisection: Bisection, share: float) -> None:
    met, missed = bisection.highest_met, bisection.lowest_missed
    if met is None:
        text = f"found no rate at which {share:.0%} of requests meet the objectives"
    else:
        text = f"{share:.0%} of requests meet the objectives up to {met:.3g} per second"
        text += "" if missed is None else f"; at {missed:.3g} they do not"
    session.console.print(f"interrupted; so far {text}" if session.stopped else text)

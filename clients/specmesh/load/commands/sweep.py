"""``specmesh load sweep``: runs at several rates, and with several options."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import typer

from specmesh.cli.exit_status import ExitStatus
from specmesh.load.commands.asked import arrivals_at, plan_of
from specmesh.load.commands.inapplicable import refuse_inapplicable
from specmesh.load.commands.options import LoadOptions
from specmesh.load.commands.parsing import parsed_by
from specmesh.load.commands.session import RunSession, carry_out, in_words
from specmesh.load.results.report import Point, Result, RunSetting, SweepReport
from specmesh.load.results.saturation import saturated
from specmesh.load.results.tables import show_points
from specmesh.load.runs.conduct import RunPlan


def _rates(text: str) -> tuple[float, ...]:
    try:
        rates = tuple(sorted(map(float, text.split(","))))
    except ValueError:
        rates = ()
    if not all(map(math.isfinite, rates)):
        raise ValueError(f"the rates must be finite, not {text}; for a burst use 'run --users N'")
    if not rates or rates[0] <= 0:
        raise ValueError(f"{text!r} is not a list of positive rates: write 5,10,20")
    return rates


def _settings(text: str) -> tuple[str, tuple[str, ...]]:
    name, _, values = text.partition("=")
    if not name or not values:
        raise ValueError(f"{text!r} is not of the form NAME=VALUE,VALUE")
    return name, tuple(values.split(","))


def sweep(
    context: typer.Context,
    rates: Annotated[
        tuple,  # type: ignore[type-arg]
        typer.Option(
            parser=parsed_by(_rates),
            metavar="RATE,RATE...",
            help="Rates in conversations per second, in ascending order until the server "
            "can't keep up.",
        ),
    ],
    *,
    asked: LoadOptions,
    over: Annotated[
        list[tuple] | None,  # type: ignore[type-arg]
        typer.Option(
            parser=parsed_by(_settings),
            metavar="NAME=VALUE,VALUE...",
            help="Also vary the strategy (strategy=dsi,speculative) or an option of -o. May be "
            "repeated; all combinations are run.",
            rich_help_panel="Requests",
        ),
    ] = None,
) -> None:
    """Run at increasing rates until the server can't keep up."""
    refuse_inapplicable(context, asked)
    combinations = _combinations(over or ())
    first = plan_of(asked, rates[0])
    plans = [(each, _changed(first, each)) for each in combinations]
    session = RunSession(asked.results)

    async def work() -> int:
        points: list[Point] = []
        with session.adding_to(points):
            for changed, plan in plans:
                for rate in rates:
                    at_rate = replace(plan.workload, arrivals=arrivals_at(asked, rate))
                    title = " ".join((f"{rate:g}/s", *map("=".join, changed.items())))
                    done = await session.run(replace(plan, workload=at_rate), title)
                    points.append(point(rate, changed, session.setting(done.plan), done.result))
                    if session.stopped or points[-1].saturated:
                        break
                if session.stopped:
                    break
        failure = in_words(session.failure)
        found = SweepReport(
            setting=points[0].setting, points=points, failure=failure, interrupted=session.stopped
        )
        session.write(found)
        show_points(session.console, points)
        return session.status(ExitStatus.OK)

    carry_out(work, first.door)


def point(
    rate: float,
    changed: Mapping[str, str],
    setting: RunSetting,
    result: Result,
    share: float | None = None,
) -> Point:
    """Return the point of a run at ``rate``.

    It meets the objectives if the server kept up and ``share`` of the requests met them, which is
    unknown if there were none.
    """
    why = saturated(result)
    meets = None
    if share is not None and result.goodput is not None and result.goodput.share is not None:
        meets = not why and result.goodput.share >= share
    return Point(
        rate=rate, changed=changed, setting=setting, saturated=why, meets=meets, result=result
    )


def _combinations(over: Sequence[tuple[str, Sequence[str]]]) -> list[Mapping[str, str]]:
    """Return all combinations of the values; those of an option that is named twice add up."""
    values: dict[str, dict[str, None]] = {}
    for name, given in over:
        values.setdefault(name, {}).update(dict.fromkeys(given))
    return [dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())]


def _changed(plan: RunPlan, settings: Mapping[str, str]) -> RunPlan:
    variations = plan.workload.variations
    for name, text in settings.items():
        try:
            variations = tuple(each.having(name, text) for each in variations)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--over") from None
    return replace(plan, workload=replace(plan.workload, variations=variations))

"""``specmesh load run``: one run at a given load, and its report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.output_files import check_different, check_writable
from specmesh.load.commands.asked import plan_of
from specmesh.load.commands.inapplicable import refuse_inapplicable
from specmesh.load.commands.options import LoadOptions
from specmesh.load.commands.parsing import finite_rate
from specmesh.load.commands.session import RunSession, carry_out
from specmesh.load.results.csv_file import write_csv
from specmesh.load.results.report import RunReport
from specmesh.load.results.tables import show_result


def run(
    context: typer.Context,
    rate: Annotated[
        float | None,
        typer.Option(
            min=1e-6,
            callback=finite_rate,
            help="Open loop: conversations started per second, however long answers take.",
        ),
    ] = None,
    *,
    asked: LoadOptions,
    csv: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a CSV file with a row for each request.",
            rich_help_panel="Results",
        ),
    ] = None,
) -> None:
    """Send requests and measure their latencies.

    Exactly one of --rate, --users and --trace sets when they are sent. A TIME has a unit: 200ms,
    30s, 5m.
    """
    refuse_inapplicable(context, asked)
    plan = plan_of(asked, rate)
    session = RunSession(asked.results)
    check_writable(csv, "--csv")
    check_different({"--json": asked.results.json_, "--html": asked.results.html, "--csv": csv})

    async def work() -> int:
        done = await session.run(plan, plan.door.description)
        session.write(RunReport(setting=session.setting(done.plan), result=done.result))
        if csv is not None:
            with session.writing():
                write_csv(csv, done.plan.workload, done.seen.observations)
        show_result(session.console, done.result)
        return session.status(ExitStatus.OK if done.result.counts.answered else ExitStatus.FAILED)

    carry_out(work, plan.door)

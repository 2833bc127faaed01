"""``specmesh load compare``: the differences between two runs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from specmesh.cli.output_files import check_writable
from specmesh.cli.printable import PrintableConsole
from specmesh.cli.tables import make_table
from specmesh.load.commands.report_files import names_of, read_report
from specmesh.load.html.contents import comparison
from specmesh.load.html.document import write_page
from specmesh.load.html.other_settings import other_settings

_File = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="The JSON report of a run.")
]


def compare(
    before: _File,
    after: _File,
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write an HTML page with charts of both runs."),
    ] = None,
) -> None:
    """Estimate, with 95 % confidence, how AFTER differs from BEFORE (reports of two runs)."""
    # numpy takes as long to import as everything else together.
    from specmesh.load.results.compare import METRICS, differences, latencies

    check_writable(html, "--html")
    reports = read_report(before), read_report(after)
    for file, report in zip((before, after), reports, strict=True):
        try:
            latencies(report)
        except KeyError as error:
            raise typer.BadParameter(f"{file}: the field {error} is missing") from None
        except ValueError as error:
            raise typer.BadParameter(f"{file} {error}") from None
    try:
        found = differences(*reports)
        others = other_settings(*reports)
        listed = [{**asdict(each), "in_words": each.in_words} for each in found]
        names = names_of((before, after))
        named = (names[0], reports[0]), (names[1], reports[1])
        made = comparison(*named, listed, others) if html else {}
        counts = {
            run: {name: report["result"]["counts"][name] for name in ("answered", "failed")}
            for run, report in zip(("before", "after"), reports, strict=True)
        }
    except KeyError as error:
        raise typer.BadParameter(f"{before} or {after}: the field {error} is missing") from None
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise typer.BadParameter(f"{before} or {after}: {error}") from None
    if html is not None:
        try:
            write_page(html, made)
        except OSError as error:
            raise typer.BadParameter(str(error), param_hint="--html") from None
    if json_:
        typer.echo(json.dumps({"differences": listed, "other_settings": others, "counts": counts}))
        return
    console = PrintableConsole(highlight=False)
    table = make_table("", "", "", "before", "after", "", num_left=2)
    for each in found:
        table.add_row(
            METRICS[each.metric],
            each.statistic,
            f"{each.before:.1f} ms",
            f"{each.after:.1f} ms",
            each.in_words,
        )
    console.print(table)
    if any(each["failed"] for each in counts.values()):
        # Only answers have latencies: a run whose slow requests fail looks faster.
        told = "; ".join(
            f"{run} {each['answered']} answered, {each['failed']} failed"
            for run, each in counts.items()
        )
        console.print(f"failed requests are not compared: {told}", style="yellow")
    if others:
        console.print(f"the runs also differ: {'; '.join(others)}", style="yellow", markup=False)

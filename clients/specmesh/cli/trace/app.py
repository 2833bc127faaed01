"""``specmesh trace`` and its subcommands."""

from __future__ import annotations

from specmesh.cli.trace.difference import diff
from specmesh.cli.trace.exporting import export
from specmesh.cli.trace.importing import import_
from specmesh.cli.trace.listing import list_
from specmesh.cli.trace.show import show
from specmesh.cli.trace.statistics import stats
from specmesh.cli.trace.web import open_
from specmesh.serving.process.typer_app import App

app = App(
    name="trace",
    help="Show where the time of answers went.",
    no_args_is_help=True,
)
app.command("list")(list_)
app.command("show")(show)
app.command("open")(open_)
app.command("stats")(stats)
app.command("diff")(diff)
app.command("export")(export)
app.command("import")(import_)

"""The program ``specmesh load``."""

from __future__ import annotations

from specmesh.load.commands.compare import compare
from specmesh.load.commands.report import report
from specmesh.load.commands.run import run
from specmesh.load.commands.search import search
from specmesh.load.commands.sweep import sweep
from specmesh.serving.process.typer_app import App

app = App(
    help="Measure a mesh, or any OpenAI-compatible server, under load: throughput and latency.",
    no_args_is_help=True,
)
app.command()(run)
app.command()(sweep)
app.command()(search)
app.command()(compare)
app.command()(report)


if __name__ == "__main__":
    app(prog_name="specmesh load")

"""``specmesh simulate``: the papers' experiments and custom meshes, in virtual time."""

from __future__ import annotations

from specmesh.serving.process.typer_app import App
from specmesh.tools.simulate.commands.branch_prediction import branches, phi
from specmesh.tools.simulate.commands.dsi import dsi_table_2, offline_grid
from specmesh.tools.simulate.commands.mesh import modes, run_mesh

app = App(
    name="specmesh simulate",
    help="Run the mesh's strategies on a virtual clock.",
    no_args_is_help=True,
)
app.command("grid")(offline_grid)
app.command("table2")(dsi_table_2)
app.command("modes")(modes)
app.command("branches")(branches)
app.command("phi")(phi)
app.command("run")(run_mesh)


if __name__ == "__main__":
    app(prog_name="specmesh simulate")

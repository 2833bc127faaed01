"""The papers' experiments, rerun by ``specmesh simulate`` with the strategies of the mesh."""

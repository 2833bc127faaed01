"""The papers' experiments, repeated by ``specmesh simulate`` with the mesh's strategies."""

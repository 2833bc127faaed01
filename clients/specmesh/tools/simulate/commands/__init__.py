"""The commands of ``specmesh simulate``: the runs, and the figures that are shown."""

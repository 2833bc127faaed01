"""The commands of ``specmesh simulate``: what is run, and which figures are shown."""

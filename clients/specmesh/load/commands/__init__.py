"""The commands of ``specmesh load``."""

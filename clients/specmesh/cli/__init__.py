"""The command line: ``specmesh up``, ``generate``, ``demo`` and the rest."""

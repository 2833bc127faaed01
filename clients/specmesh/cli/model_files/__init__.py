"""The files of a model, identified by one digest: ``specmesh models sums``, ``verify`` and
``fetch``."""

"""A model's files: named by one digest, checked, and fetched: ``specmesh models sums``, ``verify``,
``fetch``."""

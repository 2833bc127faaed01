"""Backends: the ways to compute a model, each under its name for ``--backend``."""

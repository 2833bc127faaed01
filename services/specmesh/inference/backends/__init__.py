"""Backends: what computes a model, each under the name that ``--backend`` takes."""

"""Runs a request again in simulation, as its trace tells it, with one thing changed.

Reading order: ``recorded`` (what the trace says), ``models`` (who guesses what), ``what_if``.
"""

"""The replay of a traced request in simulation, with one thing changed.

Reading order: ``recorded`` (the contents of the trace), ``models`` (the recorded guesses),
``what_if``.
"""

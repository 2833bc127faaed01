"""``specmesh bench mesh``: DSI's Table 2 through real processes that serve simulated models.

Reading order: ``__main__``, ``simulated`` (what to measure, and what a mesh without any cost of
its own would take), ``measure`` (the runs), ``summary`` (a row), ``report`` (how it looks).
"""

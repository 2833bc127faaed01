"""``specmesh bench mesh``: DSI's Table 2 on real processes that serve simulated models.

Reading order: ``__main__``, ``simulated`` (the times of a mesh without overhead), ``measure`` (the
runs), ``summary`` (a row), ``report``.
"""

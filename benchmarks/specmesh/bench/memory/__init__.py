"""``specmesh bench memory``: does any process of a mesh grow with the requests it answers?

Reading order: ``__main__``, ``traffic`` (the requests), ``measure`` (the run), ``summary`` (how
fast each process grows), ``report``.
"""

"""``specmesh bench memory``: does any process of a mesh grow with the requests it answers?

Reading order: ``__main__``, ``traffic`` (what is asked), ``measure`` (the run), ``summary`` (how
fast each process grows), ``report`` (how it looks).
"""

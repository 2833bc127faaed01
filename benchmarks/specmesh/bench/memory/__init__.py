"""``specmesh bench memory``: the growth of a mesh's processes with the requests they answer.

Reading order: ``__main__``, ``traffic`` (the requests), ``measure`` (the run), ``summary`` (the
growth of each process), ``report``.
"""

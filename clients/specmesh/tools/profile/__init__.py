"""``specmesh profile``: the costs of a mesh's forwards and hops, and the best strategy for them.

This is Ghidorah's architecture-aware profiling (ARCA, Section III-C), for a mesh. ``run.py``
measures through the RPCs that serving uses; ``law.py``, ``predict.py`` and ``choose.py`` are pure.
"""

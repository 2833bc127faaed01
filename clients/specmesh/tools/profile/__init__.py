"""``specmesh profile``: what a mesh's forwards and hops cost, and the strategy that follows.

Ghidorah's architecture-aware profiling (ARCA, Section III-C), for a mesh. ``run.py`` measures
through the RPCs that serving uses; ``law.py``, ``predict.py`` and ``choose.py`` are pure.
"""

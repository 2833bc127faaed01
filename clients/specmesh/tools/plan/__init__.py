"""``specmesh plan``: the number of verifiers and drafters that a load needs, by simulation.

Reading order: ``setting`` (models, load and objectives), ``predict`` (one mesh, simulated),
``search`` (the smallest mesh that meets the objectives), ``report``. ``specmesh bench plan``
compares it with meshes of real processes.
"""

"""The strategies on a virtual clock: the papers' experiments, and meshes of any size.

Reading order: ``law`` and ``costs`` (the time that everything takes), ``clock``, ``servers`` (whose
work takes time), ``mesh`` (the choice of a server), ``request`` (one strategy at work), ``run`` (a
whole simulation).
"""

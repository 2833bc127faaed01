"""The strategies on a virtual clock: the papers' experiments, and meshes of any size.

Reading order: ``clock``, ``servers`` (what takes time), ``mesh`` (which server), ``request``
(one strategy at work), ``run`` (a whole simulation).
"""

"""``specmesh bench capacity``: what the mesh itself costs per token, when models cost nothing.

Reading order: ``placement`` (the cores), ``mesh`` (the processes), ``load`` (the streams, in
generator processes), ``relay`` and ``floor`` (the same messages without a mesh), ``figures`` (costs
from counters), ``cells`` (the rounds), ``report``.
"""

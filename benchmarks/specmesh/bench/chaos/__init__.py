"""``specmesh bench chaos``: a mesh of real processes is broken at random, and nobody may notice.

Reading order: ``plan`` (which fault when), ``mesh`` (what is broken), ``links`` and ``proxy``
(connections that can be broken), ``faults`` (breaking it), ``asks``, ``pairs`` and ``load`` (the
streams), ``truth``, ``store`` and ``judge`` (was it right?), ``starvation`` (was it the
machine?), ``run``, ``report``.
"""

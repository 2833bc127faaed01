"""``specmesh bench chaos``: random faults in a mesh of real processes, with every answer checked.

Reading order: ``plan`` (which fault happens when), ``mesh`` (the processes), ``links`` and
``proxy`` (connections that can be broken), ``faults`` (which carries them out), ``requests`` and
``load`` (the streams), ``judging`` (the check of answers), ``starvation`` (the check that the
machine was not too busy), ``run``, ``report``.
"""

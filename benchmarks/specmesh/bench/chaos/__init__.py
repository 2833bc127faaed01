"""``specmesh bench chaos``: break a mesh of real processes at random and check every answer.

Reading order: ``plan`` (which fault happens when), ``mesh`` (the processes), ``links`` and
``proxy`` (connections that can be broken), ``faults`` (carries them out), ``requests``, ``pairs``
and ``load`` (the streams), ``truth``, ``store`` and ``judge`` (whether answers are right),
``starvation`` (whether the machine was too busy), ``run``, ``report``.
"""

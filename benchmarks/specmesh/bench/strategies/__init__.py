"""``specmesh bench strategies``: every strategy on the same prompts, in one run.

Reading order: ``summary`` (what the runs say), ``repeats`` (how much of a text says the same
again), ``bench`` (the course of it), ``report`` (how it looks), ``__main__``. The demo shares
``summary`` and ``report``.
"""

"""``specmesh bench strategies``: every strategy on the same prompts, in one run.

Reading order: ``summary`` (the conclusions), ``repeats`` (how much of a text repeats itself),
``bench`` (the steps), ``report``, ``__main__``. The demo shares ``summary`` and ``report``.
"""

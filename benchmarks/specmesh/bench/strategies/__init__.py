"""``specmesh bench strategies``: every strategy on the same prompts, in one run.

Reading order: ``measure`` (the runs), ``summary`` (what they say), ``repeats`` (how much of a
text says the same again), ``traced`` (a mesh whose
traces are kept), ``bench`` (the course of it), ``report`` (how it looks), ``__main__``. The
demo shares all but the last two of these and the course.
"""

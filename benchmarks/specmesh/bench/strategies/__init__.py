"""``specmesh bench strategies``: every strategy on the same prompts, in one run.

Reading order: ``bench`` (the steps), ``__main__``. The comparison and its report are those of the
demo.
"""

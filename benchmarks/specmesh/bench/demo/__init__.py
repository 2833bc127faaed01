"""``specmesh demo``: the same prompts with every strategy, on a mesh of its own.

Reading order: ``__main__``, ``course`` (the course of it), ``report`` (where one answer's time
goes), ``timeline`` (a picture of it). Summing up is in ``strategies``.
"""

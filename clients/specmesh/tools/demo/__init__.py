"""``specmesh demo``: the same prompts with every strategy, on a mesh of its own.

Reading order: ``__main__``, ``course`` (its steps), ``report`` (where one answer's time goes),
``timeline`` (a picture of that). The package ``strategies`` sums the runs up.
"""

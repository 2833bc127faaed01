"""``specmesh bench filter``: the loss in quality and the gain in speed of the strategy ``filter``.

Reading order: ``sweep`` (the runs) and ``thresholds`` (their settings), ``fidelity`` (the quality
of their texts), ``summary`` (the conclusions), ``sessions`` (many concurrent ones), ``bench`` (the
steps), ``picture`` and ``report``, ``__main__``.
"""

"""``specmesh bench filter``: what the strategy ``filter`` loses in quality and gains in speed.

Reading order: ``sweep`` (the runs) and ``thresholds`` (their settings), ``fidelity`` (how good
their texts are), ``summary`` (the conclusions), ``sessions`` (many at once), ``bench`` (the
steps), ``picture`` and ``report``, ``__main__``.
"""

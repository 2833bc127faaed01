"""``specmesh bench filter``: what the strategy ``filter`` gives up, and what it gains.

Reading order: ``sweep`` (the runs) and ``thresholds`` (of what), ``fidelity`` (how good their
texts are), ``summary`` (what they say), ``sessions`` (many at once), ``bench`` (the course of
it), ``picture`` and ``report`` (how it looks), ``__main__``.
"""

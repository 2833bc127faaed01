"""``specmesh bench lookahead``: drafts of every fixed length against those that adapt.

Reading order: ``summary`` (what the runs say), ``report`` (how it looks), ``bench`` (the course
of it), ``__main__``. The runs are those of ``specmesh bench strategies``.
"""

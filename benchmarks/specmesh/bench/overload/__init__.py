"""``specmesh bench overload``: what a mesh answers when more is asked of it than it can give.

Reading order: ``mesh`` (the processes), ``gauges`` (the rooms and the queue over time), ``cells``
(the runs), ``report``.
"""

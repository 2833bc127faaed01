"""``specmesh bench prefixes``: the gain of chats when orchestrators share which replica holds which
prefix.

Reading order: ``chats`` (the load), ``mesh`` (the processes, with and without the directory),
``measure`` (the runs), ``report``.
"""

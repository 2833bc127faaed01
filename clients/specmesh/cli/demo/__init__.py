"""``specmesh demo``: the same prompts with and without speculation, on a mesh of its own.

Reading order: ``command`` (the course of it), ``measure`` (the runs), ``summary`` (what they
say), ``traced`` (where one answer's time goes), ``report`` (how it looks).
"""

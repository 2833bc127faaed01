"""``specmesh demo``: the same prompts with every strategy, on its own mesh.

Reading order: ``__main__``, ``course`` (its steps), ``comparison`` (speed and compute of each
strategy), ``report`` (where the time of one answer goes), ``timeline`` (a picture of that).
"""

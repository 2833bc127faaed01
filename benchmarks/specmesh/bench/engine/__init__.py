"""``specmesh bench engine``: the engine against transformers' own ``generate``.

Only child processes import torch and transformers: the parent holds no model, so that the memory of
each child is its own.
"""

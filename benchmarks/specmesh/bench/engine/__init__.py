"""The engine against transformers' own ``generate``: ``specmesh bench engine``.

Neither torch nor transformers is imported before a function of the child process needs it: the
process that the user started holds no model, so that the children's memory is their own.
"""

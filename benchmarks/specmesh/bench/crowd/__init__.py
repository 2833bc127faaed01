"""``specmesh bench crowd``: many answers at once, with every strategy and with the target alone.

Reading order: ``targets`` (the times of forwards), ``grid`` (what is simulated), ``speeds`` (one
simulation), ``summary`` (the strategies against the target alone), ``real`` (real processes),
``report``.
"""

"""``specmesh bench load``: the accuracy of ``specmesh load`` against queueing theory, and its
capacity.

Reading order: ``queue`` (the closed forms of M/D/1), ``theory`` (the same waits measured on a
mesh), ``speed`` (the rate of one generator, against ``stub``).
"""

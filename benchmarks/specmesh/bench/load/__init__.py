"""Whether ``specmesh load`` tells the truth: against queueing theory, and how much load it makes.

Reading order: ``queue`` (the closed forms of M/D/1), ``theory`` (measures the same of a mesh),
``speed`` (what one generator drives, against ``stub``).
"""

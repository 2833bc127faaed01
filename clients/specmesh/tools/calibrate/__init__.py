"""``specmesh calibrate confidence``: a fit of the probability that the target agrees with a
drafter's token.

Reading order: ``collect`` (the drafter's choices, and whether the target agreed), ``judged`` (the
quality of a fit on positions that it has not seen), ``report``.
"""

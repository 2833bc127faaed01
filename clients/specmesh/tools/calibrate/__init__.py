"""``specmesh calibrate confidence``: how likely the target agrees with a drafter's token.

Reading order: ``collect`` (the drafter's choices, and whether the target agreed), ``judged`` (how
good a fit is on positions that it has not seen), ``report``.
"""

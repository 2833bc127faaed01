"""``specmesh calibrate confidence``: how sure a drafter must be for the target to agree.

Reading order: ``collect`` (what the drafter thought, and whether the target agreed), ``judged``
(what a fit is worth on places it has not seen), ``report`` (how it looks).
"""

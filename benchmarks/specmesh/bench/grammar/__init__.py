"""``specmesh bench grammar``: answers that follow JSON Schemas, with and without speculation, and
what their masks cost.

Reading order: ``__main__``, ``schemas`` (of the kind that people use), ``bench`` (the steps),
``answers`` (on a mesh), ``masks`` (in this process, by the size of the vocabulary).
"""

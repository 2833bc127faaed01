"""Training of heads for a target, on a corpus and on the target's own texts.

Reading order: ``generations`` (the target's own texts, by the engine), ``texts`` (both as tokens),
``unroll`` (the inputs of heads along a text, and their loss), ``pipeline`` and
``training/__main__``.
"""

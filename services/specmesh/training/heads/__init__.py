"""Trains heads for a target, on a corpus and on what the target writes itself.

Reading order: ``generations`` (the target's own texts, by the engine), ``texts`` (both as tokens),
``unroll`` (what heads are told along a text, and their loss), ``pipeline`` and
``training/__main__``.
"""

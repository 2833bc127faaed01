"""Training of heads for a target, on a corpus and on the target's own texts.

Reading order: ``generations`` (the target's own texts, by the engine), ``texts`` (both as tokens),
``trainee`` (heads of any kind, along a text), ``stateless`` and ``eagle3``, ``loss``, ``pipeline``
and ``training/__main__``.
"""

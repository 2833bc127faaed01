"""Running language models.

``model`` is the interface of a model, ``models`` implement it, ``engine`` runs the forward passes
of many calls together, ``service`` is what drafter and verifier processes share around them.
"""

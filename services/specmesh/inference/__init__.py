"""Running language models.

``model`` says what a model is to the services. ``models`` implement it, ``engine`` runs their
forwards for many calls at once, ``service`` is what processes around them share.
"""

"""Running language models.

``model`` says what a model is to the services; ``transformers_model``, ``context_models``,
``ngram``, ``simulated`` and ``empty`` implement it. ``engine`` runs their forwards for many
calls at once, ``job`` by job. The KV of transformers' models: ``blocks`` (who uses which block),
``kv_store`` (the tensors), ``batch`` (one forward's plan), ``attention`` (over blocks).
``prefixes`` finds the tokens that a call names by digest.
"""

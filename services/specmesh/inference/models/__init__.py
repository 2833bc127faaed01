"""Implementations of ``LanguageModel``: transformers' models, whole or in parts, simulated ones,
and drafters that look at the context alone."""

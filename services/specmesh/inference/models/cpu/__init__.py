"""Replacements for modules of a loaded model that compute the same, but faster on a CPU.

``transformers_model`` uses only ``linear`` and ``norm``.
"""

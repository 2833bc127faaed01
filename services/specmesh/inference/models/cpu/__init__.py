"""Replacements for a loaded model's modules that compute the same faster on a CPU.

``transformers_model`` uses ``linear`` and ``norm`` alone.
"""

"""Modules that compute the same faster on a CPU, put in the place of a loaded model's own.

``transformers_model`` uses ``linear`` and ``norm`` alone.
"""

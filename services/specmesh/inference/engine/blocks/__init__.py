"""KV blocks without tensors: which hold what, who uses them, and which are given up first.

Reading order: ``pool``, ``registry``, ``usage``, then ``recent_chains`` and ``recent_tables``.
"""

"""``specmesh bench traces``: what traces say of the orchestrator, and what a store of them bears.

Reading order: ``__main__``, ``answers`` (a mesh whose answers are traced), ``path`` (what they
waited for), ``multiply`` and ``store`` (many traces, and how long the commands take).
"""

"""``specmesh bench traces``: the orchestrator's time, from traces, and the speed of a store of
traces.

Reading order: ``__main__``, ``answers`` (a mesh whose answers are traced), ``path`` (what they
waited for), ``multiply`` and ``store`` (many traces, and the time of the commands).
"""

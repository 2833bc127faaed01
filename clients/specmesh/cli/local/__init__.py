"""A whole mesh on one machine: Redis, verifiers, a drafter and an orchestrator as processes.

Reading order: ``mesh`` (its processes), ``cores`` (their placement), ``supervisor`` (starts and
stops them), ``process`` (a single one), ``launcher`` (the program that becomes one).
"""

"""A whole mesh on one machine: Redis, verifiers, a drafter and an orchestrator as processes.

Reading order: ``mesh`` (which processes), ``cores`` (where they run), ``supervisor`` (their
life together), ``process`` (one of them), ``launcher`` (what runs before it does).
"""

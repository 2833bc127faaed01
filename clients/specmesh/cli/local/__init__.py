"""A whole mesh on one machine: Redis, verifiers, a drafter and an orchestrator as processes.

Reading order: ``mesh`` (which processes), ``cores`` (where they run), ``supervisor`` (starts
and stops them), ``process`` (one of them), ``launcher`` (what runs before it does).
"""

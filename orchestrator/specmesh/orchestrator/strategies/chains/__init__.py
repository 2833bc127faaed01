"""Chains of draft tokens that run ahead of the answer, and their verifications in parallel."""

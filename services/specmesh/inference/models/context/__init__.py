"""Drafters without a network: they guess from text alone."""

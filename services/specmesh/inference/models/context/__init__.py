"""Drafters without a network, which guess from text alone."""

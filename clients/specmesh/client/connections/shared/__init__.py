"""Calls that carry many answers at once."""

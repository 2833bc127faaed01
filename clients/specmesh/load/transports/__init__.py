"""The protocols that a generator speaks."""

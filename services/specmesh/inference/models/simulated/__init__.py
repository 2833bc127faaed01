"""Models that take a set time and compute nothing."""

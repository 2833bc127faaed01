"""Models that compute nothing and take a set time."""

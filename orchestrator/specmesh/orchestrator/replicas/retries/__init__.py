"""Attempts of a call: the replica for each, whether to retry, and the blame for failures."""

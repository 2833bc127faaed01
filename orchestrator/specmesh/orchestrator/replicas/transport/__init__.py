"""The way to one replica: its channel and the calls that stay open on it."""

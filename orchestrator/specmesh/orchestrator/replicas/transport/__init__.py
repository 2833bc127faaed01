"""The connection to one replica: its channel and the calls kept open on it."""

"""One answer: its events, its session, and the report about it."""

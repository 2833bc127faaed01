"""One answer: its events, its session, and what is reported of it."""

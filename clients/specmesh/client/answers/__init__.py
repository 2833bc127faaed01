"""One answer over as many calls as it takes, and what the client returns of it."""

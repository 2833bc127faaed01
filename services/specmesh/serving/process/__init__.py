"""A process from its command line to its end, and the server that it runs."""

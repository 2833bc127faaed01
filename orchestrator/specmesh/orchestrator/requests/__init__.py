"""Requests become plans: everything is checked and every default settled before any work."""

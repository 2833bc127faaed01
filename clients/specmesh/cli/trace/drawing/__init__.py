"""A trace as lines of text."""

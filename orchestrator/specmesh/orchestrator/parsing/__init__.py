"""Parsing of answers: reasoning and calls of tools, which a model writes as text."""

"""Conversion between messages and domain types; no other module builds or reads either."""

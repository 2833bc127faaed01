"""Decides whether an answer may begin, and keeps it waiting until it may."""

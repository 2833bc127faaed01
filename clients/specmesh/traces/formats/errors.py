"""The error of all readers."""

from __future__ import annotations


class UnreadableTraces(Exception):
    """The input does not contain traces in a known format; the message says what is wrong where."""

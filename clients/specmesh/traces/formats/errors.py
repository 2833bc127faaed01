"""What every reader may raise."""

from __future__ import annotations


class UnreadableTraces(Exception):
    """A text holds no traces in a form that is known; the text says what is wrong where."""

"""Why a process does not start."""

from __future__ import annotations


class CannotStart(Exception):
    """The process cannot do its work as configured; the message is for whoever started it."""

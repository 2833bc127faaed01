"""The error of a process that cannot start."""

from __future__ import annotations


class CannotStart(Exception):
    """The process cannot work as configured; the message is for the operator."""

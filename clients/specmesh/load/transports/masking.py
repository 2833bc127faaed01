"""URLs as reports and messages show them."""

from __future__ import annotations

import re

_USER = re.compile(r"(?<=://)[^/?#\s]*@")
"""Matches the user and the password of a URL."""


def masked(text: str) -> str:
    """Return ``text`` without the user and the password of any URL in it: reports are published."""
    return _USER.sub("***@", text)

"""The user of Redis that docs/security.md describes."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "security.md"
COMMANDS = tuple(re.findall(r"(?<= )\+([a-z|]+)", DOCS.read_text("utf-8")))
"""What it may do."""
USER, PASSWORD = "documented", "documented-password"


def rules(keys: str, commands: tuple[str, ...] = COMMANDS) -> list[str]:
    """The rules for a user of ``keys``, a pattern, and ``commands``."""
    return [f"~{keys}", *(f"+{command}" for command in commands)]


def as_documented(url: str) -> str:
    """The ``url`` of a server of the tests, for the documented user, who has all keys there."""
    return url.replace("://", f"://{USER}:{PASSWORD}@", 1)

"""Durations in text form: ``200ms``, ``2s``, ``5m``."""

from __future__ import annotations

import re

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h)")


def seconds(text: str) -> float:
    """Parse a number with a unit as seconds. Raises ValueError."""
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a time: write it with a unit, as 200ms, 2s or 5m")
    return float(found[1]) * _SECONDS[found[2]]


def written(duration_s: float) -> str:
    """Format ``duration_s`` in milliseconds or seconds, such as ``12.3 ms``."""
    if duration_s < 1:
        return f"{duration_s * 1e3:.3g} ms"
    return f"{duration_s:.3g} s" if duration_s < 100 else f"{duration_s:.0f} s"  # noqa: PLR2004

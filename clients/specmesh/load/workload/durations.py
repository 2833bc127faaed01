"""Times as people write them: ``200ms``, ``2s``, ``5m``."""

from __future__ import annotations

import re

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h)")


def seconds(text: str) -> float:
    """The seconds of ``text``, a number with its unit. Raises ValueError without one."""
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no time: write it with a unit, as 200ms, 2s or 5m")
    return float(found[1]) * _SECONDS[found[2]]


def written(duration_s: float) -> str:
    """``duration_s`` with the unit that suits it, such as 12.3 ms."""
    if duration_s < 1:
        return f"{duration_s * 1e3:.3g} ms"
    return f"{duration_s:.3g} s" if duration_s < 100 else f"{duration_s:.0f} s"  # noqa: PLR2004

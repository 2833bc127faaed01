"""The console that the ``trace`` commands print to."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_CONTROLS = {
    **{code: chr(0x2400 + code) for code in range(0x20) if code != ord("\n")},
    0x7F: "␡",
    **dict.fromkeys(range(0x80, 0xA0), "\ufffd"),
}
"""A visible sign for each control character, as Unicode has one, but the end of a line."""
_FILE_WIDTH = 160
"""Number of columns if the output goes to a file or another program."""


class TraceConsole(Console):
    """A console on which no text of a trace controls the terminal: anyone may have sent it."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render with ``printable`` texts; only rich's own codes remain."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


def console() -> TraceConsole:
    """Return a console on standard output, as wide as the terminal."""
    width = None if sys.stdout.isatty() else _FILE_WIDTH
    return TraceConsole(highlight=False, width=width)


def printable(text: str) -> str:
    """Return ``text`` with visible signs for control characters."""
    return text.translate(_CONTROLS)


def short_name(name: str) -> str:
    """Return a span's name without its service's package and the suffix Service."""
    service, slash, method = name.rpartition("/")
    return f"{service.rpartition('.')[2].removesuffix('Service')}{slash}{method}"

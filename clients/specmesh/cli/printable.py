"""Texts of others on a terminal, which they must not control: anyone may have sent them."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_CONTROLS = {
    **{code: chr(0x2400 + code) for code in range(0x20) if code != ord("\n")},
    0x7F: "␡",
    **dict.fromkeys(range(0x80, 0xA0), "\ufffd"),
    # These change the order in which the text around them is shown.
    **dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\ufffd"),
}
"""A visible sign for each control character, as Unicode has one, but the end of a line."""
_MOST_LETTERS = 60


class PrintableConsole(Console):
    """A console on which no text controls the terminal."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render with ``printable`` texts; only rich's own codes remain."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


def printable(text: str) -> str:
    """Return ``text`` with visible signs for control characters."""
    return text.translate(_CONTROLS)


def in_brief(text: str) -> str:
    """Return ``text`` as one line, cut if it is long, such as of a reason that a server gives."""
    line = " ".join(text.splitlines())
    return line if len(line) <= _MOST_LETTERS else f"{line[: _MOST_LETTERS - 1]}…"

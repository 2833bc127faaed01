"""The use of cores by a process, as Linux counts it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class CoreUse:
    """The shares of a stretch of wall time, 0 to 1, of a process's first thread."""

    ran: float
    """Share of time on a core."""
    waited: float
    """Share of time ready to run, while others had the cores."""


class CoreMeter:
    """A meter that starts when it is created; ``pid`` is a process of this machine."""

    def __init__(self, pid: int) -> None:
        self._file = Path(f"/proc/{pid}/schedstat")
        self._began = (time.monotonic_ns(), *self._counted())

    def use(self) -> CoreUse | None:
        """Return the shares until now; None where the system does not report them."""
        now = (time.monotonic_ns(), *self._counted())
        wall, ran, waited = (after - before for after, before in zip(now, self._began, strict=True))
        return CoreUse(ran / wall, waited / wall) if self._file.exists() else None

    def _counted(self) -> tuple[int, int]:
        """Return nanoseconds on a core and waiting for one, since the process began."""
        try:
            ran, waited, _ = self._file.read_text().split()
        except OSError:
            return 0, 0
        return int(ran), int(waited)

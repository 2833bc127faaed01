"""The signals that tell a process to end."""

from __future__ import annotations

import signal


def end_signals() -> tuple[signal.Signals, ...]:
    """Return SIGTERM, SIGINT (Ctrl-C) and SIGHUP (the terminal is gone), unless that is ignored, as
    under ``nohup``."""
    given = signal.SIGTERM, signal.SIGINT
    return given if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*given, signal.SIGHUP)


def insists(number: int) -> bool:
    """Return whether ``number``, if it is not the first, asks to end at once. SIGHUP does not: the
    shell and the system may both tell that a terminal is gone."""
    return number != signal.SIGHUP

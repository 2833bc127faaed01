"""Says in the log that a store can't be used, and why: when that begins, and when it is over."""

from __future__ import annotations

import logging
import re

from redis.exceptions import NoPermissionError

from specmesh.serving import conventions as names

log = logging.getLogger(__name__)

QUIET_S = 10.0
"""A store that comes and goes is logged about no more often than this."""
_REFUSED = re.compile(
    r"NOPERM|no permissions|can't run this command|unknown command", re.IGNORECASE
)
"""Servers of all versions refuse a command in one of these ways, also in the midst of a script."""
_COMMAND = re.compile(r"'([\w|]+)' command|unknown command [`']([\w|]+)", re.IGNORECASE)

_refusals = names.STORE_REFUSALS.instrument()


class StoreLog:
    """Logs the troubles of the store at ``address``, which holds no secret.

    A command that the server refuses is an error, since nothing mends that by itself, and is told
    once until it works. A store that is away is a warning.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.trouble = ""
        """The reason for which the last command failed; empty if it was answered."""
        self._refused: dict[str, str] = {}
        """The refusals that were told: an operation that needs the command, by the command."""
        self._is_away = False
        """The log says that the store is away, and not yet that it is back."""
        self._told_at = float("-inf")

    def answered(self, operation: str) -> None:
        """Take note that an operation was answered."""
        self.trouble = ""
        for command, needed_for in list(self._refused.items()):
            if needed_for == operation:
                del self._refused[command]
        if self._is_away:
            self._is_away = False
            log.info("store is back", extra={"store": self.address})

    def failed(self, operation: str, reason: str, now: float) -> None:
        """Take note, at ``now`` in seconds of any clock, that an operation failed."""
        self.trouble = reason
        if not self._is_away and now - self._told_at >= QUIET_S:
            self._is_away, self._told_at = True, now
            log.warning("store is away", extra=self._fields(operation, reason))

    def refused(self, operation: str, reason: str) -> None:
        """Take note that the server refused a command of an operation."""
        self.trouble = reason
        command = command_in(reason)
        _refusals.add(1, {names.DB_OPERATION: operation, names.STORE_COMMAND: command})
        if (command or operation) not in self._refused:
            self._refused[command or operation] = operation
            fields = self._fields(operation, reason) | {"command": command}
            log.error("store refuses a command", extra=fields)

    def _fields(self, operation: str, reason: str) -> dict[str, str]:
        return {"store": self.address, "operation": operation, "reason": reason}


def is_refusal(error: Exception) -> bool:
    """Tell whether a server, or a Sentinel, refuses its user a command or a key, or has no such
    command."""
    return isinstance(error, NoPermissionError) or bool(_REFUSED.search(str(error)))


def command_in(text: str) -> str:
    """Return the command that an error of the server names, in lower case; empty if it names
    none."""
    found = _COMMAND.search(text)
    return "" if found is None else (found[1] or found[2]).lower()

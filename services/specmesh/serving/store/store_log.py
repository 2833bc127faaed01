"""The log of a store's outages: one line when an outage begins, with its reason, and one when it
ends."""

from __future__ import annotations

import logging
import re

from redis.exceptions import AuthenticationError, NoPermissionError

from specmesh.serving import conventions as names
from specmesh.serving.metrics import STORE_REFUSALS

log = logging.getLogger(__name__)

QUIET_S = 10.0
"""The shortest interval between log lines about a store that comes and goes."""
_UNAUTHENTICATED = "unauthenticated"
"""A word in the error of a server that wants a password before it reads a large command."""
_REFUSED = re.compile(
    r"NOPERM|NOAUTH|WRONGPASS|no permissions|can't run this command|unknown command"
    rf"|{_UNAUTHENTICATED}",
    re.IGNORECASE,
)
"""Matches the ways in which servers of all versions refuse a user or a command, even within a
script."""
_COMMAND = re.compile(r"'([\w|]+)' command|unknown command [`']([\w|]+)", re.IGNORECASE)

_refusals = STORE_REFUSALS.instrument()


class StoreLog:
    """Logs the failures of the store at ``address``, which holds no secret.

    A user or a command that the server refuses is an error, since it doesn't resolve by itself, and
    is logged once until it works. An unavailable store is a warning.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.trouble = ""
        """The reason why the last command failed; empty if it was answered."""
        self._refused: dict[str, str] = {}
        """The refusals that were logged: an operation that needs the command, by command."""
        self._is_away = False
        """True if the log says that the store is away, and not yet that it is back."""
        self._failing: set[str] = set()
        """The operations that a server in reach has failed, as one without memory fails writes, and
        not yet answered: that it answers others doesn't end the outage."""
        self._told_at = float("-inf")

    def answered(self, operation: str) -> None:
        """Note that an operation was answered."""
        self.trouble = ""
        for command, needed_for in list(self._refused.items()):
            if needed_for == operation:
                del self._refused[command]
        is_over = not self._failing or operation in self._failing
        self._failing.discard(operation)
        if self._is_away and is_over:
            self._is_away = False
            log.info("store is back", extra={"store": self.address})

    def failed(self, operation: str, reason: str, now: float, *, in_reach: bool = False) -> None:
        """Note, at ``now`` in seconds of any clock, that an operation failed; ``in_reach`` says
        whether a server said so."""
        self.trouble = reason
        if in_reach:
            self._failing.add(operation)
        if not self._is_away and now - self._told_at >= QUIET_S:
            self._is_away, self._told_at = True, now
            log.warning("store is away", extra=self._fields(operation, reason))

    def refused(self, operation: str, error: Exception) -> None:
        """Note that the server refused a command of an operation."""
        self.trouble = reason = str(error)
        command = command_in(error)
        _refusals.add(1, {names.DB_OPERATION: operation, names.STORE_COMMAND: command})
        if (command or operation) not in self._refused:
            self._refused[command or operation] = operation
            fields = self._fields(operation, reason) | {"command": command}
            log.error("store refuses a command", extra=fields)

    def _fields(self, operation: str, reason: str) -> dict[str, str]:
        return {"store": self.address, "operation": operation, "reason": reason}


def is_refusal(error: Exception) -> bool:
    """Return True if a server or Sentinel refused the user, or the user a command or a key, or
    doesn't know the command."""
    refused = isinstance(error, AuthenticationError | NoPermissionError)
    return refused or bool(_REFUSED.search(str(error)))


def command_in(error: Exception) -> str:
    """Return the command that a server's error refuses, in lower case; empty if it names none."""
    if isinstance(error, AuthenticationError) or _UNAUTHENTICATED in str(error):
        return "auth"
    found = _COMMAND.search(str(error))
    return "" if found is None else (found[1] or found[2]).lower()

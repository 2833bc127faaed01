"""Files that others change while this process runs: certificates, keys, lists of tokens."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

Value = TypeVar("Value")

Signature = tuple[tuple[int, int, int], ...]


class UnusableFile(Exception):
    """A file is not there, cannot be read, or does not hold what it should; the message, for the
    operator, repeats no secret."""


class Watched(Generic[Value]):
    """What files say now. They are looked at whenever it is asked for, and read if they changed:
    written, replaced, or, as Kubernetes does with its volumes, reached by another link.

    ``read`` makes a value of them, or raises ``UnusableFile`` or OSError. Files that have become
    unusable, as those of a pair are while only one of them has been written, leave the former value
    in place and are tried again. May be asked from any thread.
    """

    def __init__(self, paths: Sequence[Path], read: Callable[[], Value]) -> None:
        self._paths = paths
        self._read = read
        self._lock = threading.Lock()
        self._value: Value | None = None
        self._seen: Signature | None = None
        self._fault = ""
        """Why the files are of no use now; logged once."""

    def current(self) -> Value:
        """The value of the files as they are. Raises ``UnusableFile`` until they were usable
        once."""
        with self._lock:
            seen = self._signature()
            if self._value is None or seen is None or seen != self._seen:
                self._refresh(seen)
            assert self._value is not None
            return self._value

    def _refresh(self, seen: Signature | None) -> None:
        try:
            value = self._read()
        except (UnusableFile, OSError) as error:
            if self._value is None:
                raise UnusableFile(str(error)) from error
            if str(error) != self._fault:
                self._fault = str(error)
                log.warning("changed file not usable", extra={"reason": self._fault})
            return
        self._fault = ""
        # What changed while it was read is read again next time.
        self._seen = seen if seen == self._signature() else None
        if value != self._value:  # may only have been touched
            self._value = value

    def _signature(self) -> Signature | None:
        """Changes when a file does; None if one is not there."""
        try:
            found = [path.stat() for path in self._paths]
        except OSError:
            return None
        return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in found)

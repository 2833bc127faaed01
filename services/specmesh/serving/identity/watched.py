"""Files that change while this process runs: certificates, keys, lists of tokens."""

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
    """A file is missing, unreadable or invalid. The message is for operators and repeats no
    secret."""


class Watched(Generic[Value]):
    """The current value of some files. Each call of ``current`` checks if they have changed, and
    then reads them again: they may be written, replaced, or, in volumes of Kubernetes, linked anew.

    ``read`` makes a value of the files, or raises ``UnusableFile`` or OSError. If the files become
    unusable, as while only one of a pair has been written, the former value stays in place and
    reading is tried again. Thread-safe.
    """

    def __init__(self, paths: Sequence[Path], read: Callable[[], Value]) -> None:
        self._paths = paths
        self._read = read
        self._lock = threading.Lock()
        self._value: Value | None = None
        self._seen: Signature | None = None
        self._fault = ""
        """The reason why the files can't be used now; logged once."""

    def current(self) -> Value:
        """Return the value of the files. Raises ``UnusableFile`` if they have never been
        usable."""
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
        # Files that changed while they were read are read again next time.
        self._seen = seen if seen == self._signature() else None
        if value != self._value:  # the files may only have been touched
            self._value = value

    def _signature(self) -> Signature | None:
        """Return a value that changes when a file does; None if a file is missing."""
        try:
            found = [path.stat() for path in self._paths]
        except OSError:
            return None
        return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in found)

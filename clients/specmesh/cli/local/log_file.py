"""The file that a process's output is copied to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Self


class LogFile:
    """A file to append to, whose failures are told once and raise nothing.

    Whoever copies a process's output must go on reading it, or the process waits for ever in its
    next line. So what can't be written, because the disk is full or the folder is gone, is dropped.
    """

    def __init__(self, path: Path, tell: Callable[[str], None]) -> None:
        self._path = path
        self._tell = tell
        self._file: FileIO | None = None
        self._has_failed = False

    def append(self, data: bytes) -> None:
        """Write ``data`` to the end of the file, or drop it."""
        try:
            if self._file is None:
                self._file = self._path.open("ab", buffering=0)
            self._file.write(data)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                self._tell(f"{self._path} lacks some of the output: {error.strerror}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()

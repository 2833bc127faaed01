"""Fetching of a model's files into a folder; each is verified while it is transferred."""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BufferedRandom
from pathlib import Path
from typing import TypeVar

from specmesh.cli.model_files.sources import BrokenTransfer, Source
from specmesh.cli.model_files.sums import FILE, BadModelFiles, Sums, sha256_of

TRIES = 6
FIRST_PAUSE_S = 1.0
AT_ONCE = 4
_PIECE_BYTES = 1 << 18
"""Whoever stops a transfer waits for a piece at most."""

Told = Callable[[str], None]
T = TypeVar("T")


class _Stopped(Exception):
    """The files are no longer wanted: one of them failed, or the user pressed Ctrl-C."""


def read_sums(source: Source) -> Sums:
    """Read the source's SHA256SUMS. Raises BadModelFiles."""

    def read() -> str:
        with source.open(FILE, 0) as transfer:
            return transfer.octets.read().decode()

    return Sums.parse(_persistently(read, threading.Event()))


def kept_sums(folder: Path, digest: str) -> Sums | None:
    """Return the list in ``folder`` if it has this digest: what was fetched once needs no source,
    which may be away."""
    try:
        found = Sums.parse((folder / FILE).read_text())
    except (OSError, UnicodeDecodeError, BadModelFiles):
        return None
    return found if found.digest == digest else None


def fetch(source: Source, sums: Sums, folder: Path, told: Told) -> None:
    """Fetch the files that ``sums`` lists into ``folder``, unless they are there; ``told`` gets a
    line for each. SHA256SUMS is written last.

    A file gets its name only when it is complete and matches its digest; a broken transfer is
    continued by the next try. When one fails, or at Ctrl-C, all transfers stop. Several processes
    may fetch into one folder: one of them fetches a file, the others wait for it. Raises
    BadModelFiles or OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stop = threading.Event()

    def bring(path: str, digest: str) -> None:
        began = time.monotonic()
        fetched = _bring(source, path, digest, folder / path, stop)
        how = f"fetched in {time.monotonic() - began:.1f} s" if fetched else "already present"
        told(f"{path}: {(folder / path).stat().st_size / 1e6:.1f} MB, {how}")

    with ThreadPoolExecutor(AT_ONCE) as threads:
        tasks = [threads.submit(bring, *each) for each in sums.by_path.items()]
        try:
            for task in tasks:
                task.result()
        except BaseException:
            stop.set()
            threads.shutdown(wait=True, cancel_futures=True)
            raise
    sums.check(folder)
    _write(folder / FILE, sums.text.encode())


def _bring(source: Source, path: str, digest: str, file: Path, stop: threading.Event) -> bool:
    """Fetch a file unless it is there; return whether it had to be fetched. Raises _Stopped."""
    if file.is_file() and sha256_of(file) == digest:
        return False
    file.parent.mkdir(parents=True, exist_ok=True)
    part = _part_of(file)
    with _locked(part) as opened:
        # Another process, which held the lock before, may have fetched it.
        if file.is_file() and sha256_of(file) == digest:
            part.unlink(missing_ok=True)
            return False
        _persistently(
            lambda: _fill(source, path, digest, opened, stop),
            stop,
            reached=lambda: opened.seek(0, os.SEEK_END),
        )
        _give_name(opened, part, file)
    return True


def _fill(
    source: Source, path: str, digest: str, part: BufferedRandom, stop: threading.Event
) -> None:
    """Fetch the rest of ``part``; if the digest is wrong, empty it for the next try."""
    part.seek(0)
    found = hashlib.file_digest(part, "sha256")
    start = part.tell()
    if start and found.hexdigest() == digest:
        return  # complete, but the process ended before it could rename the file
    with source.open(path, start) as transfer:
        if transfer.start != start:
            part.truncate(0)
            found = hashlib.sha256()
        num_bytes = 0
        while piece := transfer.octets.read(_PIECE_BYTES):
            part.write(piece)
            found.update(piece)
            num_bytes += len(piece)
            if stop.is_set():
                raise _Stopped
    if transfer.num_bytes is not None and num_bytes < transfer.num_bytes:
        before = transfer.start
        raise BrokenTransfer(
            f"{path} ended after {before + num_bytes} of {before + transfer.num_bytes} bytes"
        )
    if found.hexdigest() != digest:
        part.truncate(0)
        what = f"{path} does not match its digest: SHA-256 {found.hexdigest()}, not {digest}"
        raise BrokenTransfer(what) if start else BadModelFiles(what)


@contextmanager
def _locked(part: Path) -> Iterator[BufferedRandom]:
    """Open ``part`` while no other process may fill it. An error of writing names it."""
    while True:
        try:
            with part.open("a+b") as opened:
                fcntl.flock(opened, fcntl.LOCK_EX)
                if _is_still(part, opened):
                    yield opened
                    return
        except OSError as error:
            error.filename = error.filename or str(part)
            raise


def _is_still(part: Path, opened: BufferedRandom) -> bool:
    """Return whether ``part`` is still the opened file: the previous holder of its lock may have
    renamed or removed it."""
    try:
        return os.fstat(opened.fileno()).st_ino == part.stat().st_ino
    except FileNotFoundError:
        return False


def _persistently(
    work: Callable[[], T], stop: threading.Event, reached: Callable[[], int] = lambda: 0
) -> T:
    """Return the result of ``work``, retrying with exponential backoff. A try that has ``reached``
    further than all before it, though it broke, is as good as a first one.

    Raises BadModelFiles if all tries fail, and _Stopped if ``stop`` is set between them.
    """
    failed, furthest = 0, reached()
    while True:
        try:
            return work()
        except BrokenTransfer as error:
            if (now := reached()) > furthest:
                failed, furthest = 0, now
            failed += 1
            if failed == TRIES:
                raise BadModelFiles(f"{error}; tried {TRIES} times in vain") from error
        if stop.wait(FIRST_PAUSE_S * 2 ** (failed - 1)):
            raise _Stopped


def _write(file: Path, octets: bytes) -> None:
    part = _part_of(file)
    with _locked(part) as opened:
        opened.truncate(0)
        opened.write(octets)
        _give_name(opened, part, file)


def _part_of(file: Path) -> Path:
    """Return the path that ``file`` has until it is complete."""
    return file.with_name(f".{file.name}.part")


def _give_name(opened: BufferedRandom, part: Path, file: Path) -> None:
    opened.flush()
    os.fsync(opened.fileno())
    part.replace(file)

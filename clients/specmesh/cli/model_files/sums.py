"""The files of a model in the format of ``sha256sum``, and one digest of the whole model."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

FILE = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")
_HIDDEN = "."
"""Prefix of temporary files: partial files and locks."""


class BadModelFiles(Exception):
    """A folder does not match its digest; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Sums:
    """SHA-256 of each file, by its path in the folder.

    ``text`` is the content of SHA256SUMS, whose own SHA-256 is the digest of the whole model.
    """

    text: str
    by_path: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> Sums:
        """Parse SHA256SUMS. Raises BadModelFiles for a malformed line or a file elsewhere."""
        found: dict[str, str] = {}
        for number, line in enumerate(text.splitlines(), 1):
            matched = _LINE.fullmatch(line)
            if matched is None:
                raise BadModelFiles(f"{FILE}, line {number}: not in the format of sha256sum")
            digest, path = matched.groups()
            path = path.removeprefix("./")
            if not _stays_inside(path):
                raise BadModelFiles(f"{FILE}, line {number}: {path!r} is not a valid path")
            found[path] = digest
        if not found:
            raise BadModelFiles(f"{FILE} lists no files")
        return cls(text, found)

    @classmethod
    def of(cls, folder: Path) -> Sums:
        """Compute the sums of all files in ``folder``. Raises BadModelFiles and OSError."""
        paths = _paths(folder)
        digests = _digests(folder, paths)
        return cls.parse("".join(f"{digests[path]}  {path}\n" for path in paths))

    @property
    def digest(self) -> str:
        """The digest of the whole model, in hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def expect(self, digest: str) -> None:
        """Raise BadModelFiles if the model's digest is not ``digest``."""
        if self.digest != digest:
            raise BadModelFiles(f"the digest of {FILE} is {self.digest}, not {digest}")

    def check(self, folder: Path) -> None:
        """Raise BadModelFiles, naming the first wrong files, if ``folder`` does not match."""
        present = _paths(folder)
        digests = _digests(folder, [path for path in present if path in self.by_path])
        problems = [f"{path} is missing" for path in self.by_path if path not in digests]
        problems += [
            f"{path} is altered" for path, found in digests.items() if self.by_path[path] != found
        ]
        problems += [f"{path} is not listed" for path in present if path not in self.by_path]
        if problems:
            more = f", and {len(problems) - 5} more" if len(problems) > 5 else ""  # noqa: PLR2004
            raise BadModelFiles(f"{folder}: {', '.join(problems[:5])}{more}")


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file in hex. Raises OSError."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _digests(folder: Path, paths: Iterable[str]) -> dict[str, str]:
    listed = list(paths)
    with ThreadPoolExecutor() as threads:  # hashlib releases the GIL
        found = threads.map(lambda path: sha256_of(folder / path), listed)
        return dict(zip(listed, found, strict=True))


def _paths(folder: Path) -> list[str]:
    """Return all files except SHA256SUMS and hidden ones, sorted. Raises BadModelFiles for a link
    to a folder, whose files would be read from there but are not found here, and for a name that
    isn't UTF-8."""
    found = []
    for file in folder.rglob("*"):
        path = file.relative_to(folder)
        if file == folder / FILE or any(part.startswith(_HIDDEN) for part in path.parts):
            continue
        if file.is_symlink() and file.is_dir():
            raise BadModelFiles(f"{folder}: {path} is a link to a folder")
        if file.is_file():
            found.append(_listable(path))
    return sorted(found)


def _listable(path: Path) -> str:
    """Return ``path`` as it is listed. Raises BadModelFiles."""
    octets = os.fsencode(path.as_posix())
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        raise BadModelFiles(f"the name of the file {octets!r} is not UTF-8") from error


def _stays_inside(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return (
        "\\" not in path
        and path != FILE
        and not path.startswith("/")
        and not any(part.startswith(_HIDDEN) for part in parts)
    )

"""The training corpus: the standard library's own source, split by file.

A file is held out by a hash of its name, so the split is the same on every machine and does not
depend on order. A candidate that shares much text with other files (such as the generated codec
tables) would leak through them, so it is trained on instead: held-out text has never been seen.
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

HELD_OUT_ONE_IN = 25
SHINGLE_LINES = 4
MAX_SHARED_SHINGLES = 0.05


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of the corpus: its path below the library's root, and its text."""

    path: str
    text: str

    @property
    def sha256(self) -> str:
        """Hexadecimal digest of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Corpus:
    """Disjoint sets of files; nothing in ``held_out`` may be trained on."""

    training: tuple[SourceFile, ...]
    held_out: tuple[SourceFile, ...]


def standard_library() -> Path:
    """Return the root of the running interpreter's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def read_sources(root: Path, pattern: str = "*.py") -> Iterator[SourceFile]:
    """Yield every UTF-8 file below ``root`` whose name matches ``pattern``, in name order,
    third-party packages left out."""
    for path in sorted(root.rglob(pattern)):
        if not {"site-packages", "__pycache__"} & set(path.relative_to(root).parts):
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:  # fixtures of the codec tests
                continue
            if text.strip():
                yield SourceFile(path.relative_to(root).as_posix(), text)


def split(files: Iterable[SourceFile]) -> Corpus:
    """Divide files into training and held-out sets (see the module's docstring)."""
    files = tuple(files)
    shingles = {file.path: _shingles(file.text) for file in files}
    seen = Counter(shingle for own in shingles.values() for shingle in own)
    held_out = tuple(
        file for file in files if _is_candidate(file.path) and _is_unique(shingles[file.path], seen)
    )
    paths = {file.path for file in held_out}
    return Corpus(tuple(file for file in files if file.path not in paths), held_out)


def _is_candidate(path: str) -> bool:
    digest = hashlib.blake2b(path.encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") % HELD_OUT_ONE_IN == 0


def _is_unique(own: frozenset[int], seen: Counter[int]) -> bool:
    shared = sum(seen[shingle] > 1 for shingle in own)
    return len(own) > 0 and shared <= MAX_SHARED_SHINGLES * len(own)


def _shingles(text: str) -> frozenset[int]:
    """Return the hashes of every run of ``SHINGLE_LINES`` non-blank lines, without indentation."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    runs = ("\n".join(lines[i : i + SHINGLE_LINES]) for i in range(len(lines) - SHINGLE_LINES + 1))
    return frozenset(
        int.from_bytes(hashlib.blake2b(r.encode(), digest_size=8).digest(), "big") for r in runs
    )

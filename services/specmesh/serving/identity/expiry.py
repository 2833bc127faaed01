"""A metric of the expiry of all certificates that this process presents or trusts, which is the
only warning before they expire."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar
from weakref import WeakSet

from cryptography import x509
from opentelemetry.metrics import Observation

from specmesh.serving import conventions as names
from specmesh.serving.identity.watched import UnusableFile, Watched
from specmesh.serving.metrics import CERTIFICATE_EXPIRY


class Named(NamedTuple):
    """A certificate as operators know it: its file and its subject."""

    file: str
    subject: str


Ends = Mapping[Named, float]
"""The expiry of each certificate, in seconds since 1970."""


class Ending(Protocol):
    """A value, read from files, that knows the expiry of their certificates."""

    @property
    def ends(self) -> Ends:
        """The expiry of each certificate."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Certificate files whose contents other code reads; only their expiry is kept here."""

    ends: Ends


E = TypeVar("E", bound=Ending)

_watched: WeakSet[Watched[Ending]] = WeakSet()
_lock = threading.Lock()


def reported(watched: Watched[E]) -> Watched[E]:
    """Include ``watched`` in the metric for as long as somebody else holds a reference to it."""
    with _lock:
        _watched.add(watched)  # type: ignore[arg-type] # it is only read
    return watched


def reported_files(files: Iterable[Path | None]) -> Watched[CertificateFiles]:
    """Watch those of ``files`` that are not None, which other code reads, and include them in the
    metric."""
    paths = [file for file in files if file is not None]

    def read() -> CertificateFiles:
        return CertificateFiles(ends_of({path: path.read_bytes() for path in paths}))

    return reported(Watched(paths, read))


def ends_of(files: Mapping[Path, bytes]) -> Ends:
    """Return the expiry of all certificates in PEM files. If a file has several for one subject, as
    during the replacement of a CA, the latest expiry counts.

    Raises ``UnusableFile``.
    """
    found: dict[Named, float] = {}
    for file, pem in files.items():
        try:
            certificates = x509.load_pem_x509_certificates(pem)
        except (ValueError, x509.InvalidVersion):
            raise UnusableFile(f"{file} holds no certificate in PEM") from None
        for certificate in certificates:
            named = Named(str(file), _subject_of(certificate, file))
            end = certificate.not_valid_after_utc.timestamp()
            found[named] = max(end, found.get(named, 0.0))
    return found


def _subject_of(certificate: x509.Certificate, file: Path) -> str:
    try:
        return certificate.subject.rfc4514_string()
    except ValueError as error:  # it is parsed only now
        raise UnusableFile(f"{file} holds a malformed certificate: {error}") from None


def observe(files: Iterable[Path] = ()) -> None:
    """Report the expiry of all certificates in use, and of ``files``, on each export or scrape."""
    more: Watched[Any] = reported_files(files)
    CERTIFICATE_EXPIRY.observe(lambda: _observations(more))


def _observations(more: Watched[Any]) -> Iterable[Observation]:
    with _lock:
        watched = {*_watched, more}
    found: dict[Named, float] = {}
    for each in watched:
        try:
            found.update(each.current().ends)
        except UnusableFile:
            continue  # it has never been usable, so nothing of it is in use
    return [
        Observation(end, {names.CERTIFICATE_FILE: file, names.CERTIFICATE_SUBJECT: subject})
        for (file, subject), end in found.items()
    ]

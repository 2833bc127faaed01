"""When the certificates that this process shows and believes end: nothing else tells before."""

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


class Named(NamedTuple):
    """A certificate, as an operator finds it: the file, and whom it is for."""

    file: str
    subject: str


Ends = Mapping[Named, float]
"""By certificate: the end of its time, in seconds since 1970."""


class Ending(Protocol):
    """What was read of files with certificates."""

    @property
    def ends(self) -> Ends:
        """When each of them ends."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Files of which nothing but the times matter here: others read them as well."""

    ends: Ends


E = TypeVar("E", bound=Ending)

_watched: WeakSet[Watched[Ending]] = WeakSet()
_lock = threading.Lock()


def reported(watched: Watched[E]) -> Watched[E]:
    """Have the metric tell what ``watched`` holds, for as long as somebody else has it."""
    with _lock:
        _watched.add(watched)  # type: ignore[arg-type] # it is only read
    return watched


def reported_files(files: Iterable[Path | None]) -> Watched[CertificateFiles]:
    """The same for files that others read, those that are given."""
    paths = [file for file in files if file is not None]

    def read() -> CertificateFiles:
        return CertificateFiles(ends_of({path: path.read_bytes() for path in paths}))

    return reported(Watched(paths, read))


def ends_of(files: Mapping[Path, bytes]) -> Ends:
    """When the certificates in PEM files end, by path. Where a file has several for one subject,
    as while a CA is replaced by another, the last end counts.

    Raises ``UnusableFile``.
    """
    found: dict[Named, float] = {}
    for file, pem in files.items():
        try:
            certificates = x509.load_pem_x509_certificates(pem)
        except ValueError:
            raise UnusableFile(f"{file} holds no certificate in PEM") from None
        for certificate in certificates:
            named = Named(str(file), certificate.subject.rfc4514_string())
            end = certificate.not_valid_after_utc.timestamp()
            found[named] = max(end, found.get(named, 0.0))
    return found


def observe(files: Iterable[Path] = ()) -> None:
    """Report the ends of all that is in use, ``files`` included, with each export or scrape."""
    more: Watched[Any] = reported_files(files)
    names.CERTIFICATE_EXPIRY.observe(lambda: _observations(more))


def _observations(more: Watched[Any]) -> Iterable[Observation]:
    with _lock:
        watched = {*_watched, more}
    found: dict[Named, float] = {}
    for each in watched:
        try:
            found.update(each.current().ends)
        except UnusableFile:
            continue  # nothing is in use yet
    return [
        Observation(end, {names.CERTIFICATE_FILE: file, names.CERTIFICATE_SUBJECT: subject})
        for (file, subject), end in found.items()
    ]

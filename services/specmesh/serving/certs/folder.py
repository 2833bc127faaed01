"""The folder that ``specmesh certs`` writes: a CA, and a certificate for each role."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType

from cryptography import x509

from specmesh.serving.certs.authority import Authority, CertificateSubject, Issued
from specmesh.serving.identity.roles import CLIENT, ROLES, host_of, spiffe_id

CA = "ca"
KEY = "-key.pem"
"""The suffix of key files; certificates have the suffix .pem."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class FolderError(Exception):
    """The folder holds files that must not be overwritten, or lacks files that are needed."""


def bearers(
    trust_domain: str,
    hosts: Sequence[str],
    clients: Sequence[str],
    services: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> dict[str, CertificateSubject]:
    """Return the subjects of all certificates by the stem of their files: every role, the named
    ``clients``, and ``services``, servers without a role in the mesh, with their host names."""
    answers_at = tuple(dict.fromkeys((*LOOPBACK, *hosts)))
    found = {
        role: CertificateSubject(
            role,
            spiffe_id(trust_domain, role),
            () if role == CLIENT else (host_of(role, trust_domain), *answers_at),
        )
        for role in ROLES
    }
    for name in clients:
        bearer = CertificateSubject(name, spiffe_id(trust_domain, CLIENT, name))
        found[f"{CLIENT}-{name}"] = bearer
    found |= {name: CertificateSubject(name, "", names) for name, names in services.items()}
    return found


def make(
    folder: Path,
    trust_domain: str,
    certified: dict[str, CertificateSubject],
    valid: timedelta,
    *,
    force: bool,
) -> list[Path]:
    """Write a new CA and its certificates; return the paths of the certificates.

    Raises ``FolderError`` if one of the files exists, unless ``force``.
    """
    if not force:
        _check_free(folder, (CA, *certified))
    folder.mkdir(parents=True, exist_ok=True)
    authority = Authority.new(trust_domain)
    return [_write(folder, CA, authority.own), *_issue(folder, authority, certified, valid)]


def renew(folder: Path, valid: timedelta) -> list[Path]:
    """Replace all certificates in the folder but the CA's by new ones for the same subjects, each
    file atomically; return their paths. Raises ``FolderError``."""
    certificate, key = _paths(folder, CA)
    keys = sorted(path for path in folder.glob(f"*{KEY}") if path != key)
    try:
        authority = Authority.load(certificate.read_bytes(), key.read_bytes())
        certified = {
            name: CertificateSubject.of(
                x509.load_pem_x509_certificate(_paths(folder, name)[0].read_bytes())
            )
            for name in (path.name.removesuffix(KEY) for path in keys)
        }
    except (OSError, ValueError) as error:
        raise FolderError(f"cannot renew the certificates in {folder}: {error}") from None
    return _issue(folder, authority, certified, valid)


def _issue(
    folder: Path, authority: Authority, certified: dict[str, CertificateSubject], valid: timedelta
) -> list[Path]:
    return [
        _write(folder, name, authority.issue(bearer, valid)) for name, bearer in certified.items()
    ]


def _check_free(folder: Path, names: Iterable[str]) -> None:
    taken = [path for name in names for path in _paths(folder, name) if path.exists()]
    if taken:
        raise FolderError(f"{taken[0]} exists: --renew keeps the CA, --force replaces everything")


def _paths(folder: Path, name: str) -> tuple[Path, Path]:
    return folder / f"{name}.pem", folder / f"{name}{KEY}"


def _write(folder: Path, name: str, issued: Issued) -> Path:
    certificate, key = _paths(folder, name)
    _replace(key, issued.key_pem, 0o600)
    _replace(certificate, issued.certificate_pem, 0o644)
    return certificate


def _replace(path: Path, data: bytes, mode: int) -> None:
    """Replace a file atomically, so that nobody reads it half written or with another mode."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
    fresh.replace(path)

"""TLS for both ends of a connection, from files that are read again when they change."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from specmesh.serving.identity.expiry import Ends, ends_of, reported
from specmesh.serving.identity.roles import host_of, role_of, trust_domain_of
from specmesh.serving.identity.watched import UnusableFile, Watched

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files: a certificate with its chain, its key, and the CAs that peers' must be
    signed by; without ``ca`` nobody's certificate is asked for."""

    cert: Path
    key: Path
    ca: Path | None


@dataclass(frozen=True, slots=True)
class Certificate:
    """The contents of ``TlsFiles``, in PEM, and what they say."""

    chain: bytes
    key: bytes
    ca: bytes | None
    ends: Ends
    identity: str
    """The bearer's SPIFFE id; empty without one of ours."""
    hosts: frozenset[str]
    """The host names that the certificate is for."""

    @property
    def trust_domain(self) -> str:
        """Of whom peers must be; empty where the certificate says none."""
        return trust_domain_of(self.identity)

    def host_of(self, role: str) -> str:
        """The host name that the certificate of a peer must be for: of its role in our trust
        domain. Certificates that were made before those names existed are for the role in
        ``TRUST_DOMAIN`` whatever the id says; who has one looks for such."""
        domain = self.trust_domain
        named = bool(domain) and host_of(role_of(self.identity), domain) in self.hosts
        return host_of(role, domain) if named else host_of(role)


def watched_certificate(files: TlsFiles) -> Watched[Certificate]:
    """What the files hold whenever it is asked for; key and certificate fit each other. The metric
    of expiry tells of it."""
    paths = [path for path in (files.cert, files.key, files.ca) if path is not None]
    return reported(Watched(paths, lambda: _read(files)))


def server_credentials(
    certificate: Watched[Certificate], *, require_clients: bool
) -> grpc.ServerCredentials:
    """Credentials of a port. Each new connection gets the certificate of the moment; those that are
    open keep theirs.

    ``require_clients``: only who has a certificate that the CA signed is let in. Raises
    ``UnusableFile``.
    """
    given = certificate.current()

    def changed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal given
        newest = certificate.current()
        if newest is given:
            return None
        given = newest
        return _configuration(newest)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(given),
        changed,  # type: ignore[arg-type] # None: nothing has changed
        require_clients,
    )


def role_channel(
    address: str, role: str, mine: Certificate, options: Sequence[tuple[str, int]] = ()
) -> grpc.aio.Channel:
    """A channel to ``address`` on which only a peer with a certificate of ``role``, in the trust
    domain of ``mine``, is believed.

    The name that the certificate must be for is the role's, not the address: gRPC's Python shows
    a client no more of it. So replicas may come and go at any address, and neither a drafter nor a
    verifier of another mesh can pose as a verifier.
    """
    credentials = grpc.ssl_channel_credentials(mine.ca, mine.key, mine.chain)
    named = ("grpc.ssl_target_name_override", mine.host_of(role))
    return grpc.aio.secure_channel(address, credentials, options=(*options, named))


def _configuration(certificate: Certificate) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(certificate.key, certificate.chain)], certificate.ca
    )


def _read(files: TlsFiles) -> Certificate:
    chain, key = files.cert.read_bytes(), files.key.read_bytes()
    ca = None if files.ca is None else files.ca.read_bytes()
    ends = ends_of({files.cert: chain} | ({files.ca: ca} if files.ca and ca else {}))
    leaf, *_ = x509.load_pem_x509_certificates(chain)
    try:
        public_key = load_pem_private_key(key, password=None).public_key()
    except (ValueError, TypeError):  # TypeError: it has a password
        raise UnusableFile(f"{files.key} holds no private key in PEM without a password") from None
    if public_key != leaf.public_key():
        raise UnusableFile(f"the key in {files.key} is not that of the certificate in {files.cert}")
    identity, hosts = _named(leaf)
    log.info(
        "certificate read",
        extra={
            "subject": leaf.subject.rfc4514_string(),
            "identity": identity,
            "serial": f"{leaf.serial_number:x}",
            "expires": leaf.not_valid_after_utc.isoformat(),
        },
    )
    return Certificate(chain, key, ca, ends, identity, hosts)


def _named(leaf: x509.Certificate) -> tuple[str, frozenset[str]]:
    """The SPIFFE id of ours and the host names that a certificate is for."""
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return "", frozenset()
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    identity = uris[0] if len(uris) == 1 and role_of(uris[0]) else ""
    return identity, frozenset(name.lower() for name in names.get_values_for_type(x509.DNSName))

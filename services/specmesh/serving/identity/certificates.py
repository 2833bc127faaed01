"""TLS for both ends of gRPC connections, from files that are reloaded when they change."""

from __future__ import annotations

import codecs
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import grpc.aio
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import PublicKeyAlgorithmOID

from specmesh.serving.identity.expiry import Ends, ends_of, reported
from specmesh.serving.identity.roles import host_of, role_of, trust_domain_of
from specmesh.serving.identity.watched import UnusableFile, Watched

log = logging.getLogger(__name__)

_FAULTS = (
    *(ValueError, TypeError, UnsupportedAlgorithm),  # TypeError: the key has a password
    *(x509.DuplicateExtension, x509.UnsupportedGeneralNameType),
)
"""The errors of ``cryptography`` for a certificate or a key that it can't parse. It parses much of
a certificate only when asked for it."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files: a certificate with its chain, its key, and the CAs by which to verify
    peers' certificates; without ``ca`` no certificate is requested from peers."""

    cert: Path
    key: Path
    ca: Path | None
    options: str = "--tls"
    """The prefix of their options' names, for messages."""

    def read(self) -> tuple[bytes, bytes, bytes | None]:
        """Return the contents of ``cert``, ``key`` and ``ca``. Raises ``UnusableFile``, which names
        the option."""
        ca = None if self.ca is None else self._bytes("ca", self.ca)
        return self._bytes("cert", self.cert), self._bytes("key", self.key), ca

    def _bytes(self, of: str, path: Path) -> bytes:
        try:
            # gRPC would take the mark of UTF-8 for a part of the first line, and find nothing.
            return path.read_bytes().removeprefix(codecs.BOM_UTF8)
        except OSError as error:
            why = error.strerror or error
            raise UnusableFile(f"{self.options}-{of} {path} can't be read: {why}") from error


@dataclass(frozen=True, slots=True)
class Certificate:
    """The contents of ``TlsFiles``, in PEM, and the values parsed from them."""

    chain: bytes
    key: bytes
    ca: bytes | None
    ends: Ends
    identity: str
    """The certificate's SPIFFE id; empty if it has none of specmesh."""
    hosts: frozenset[str]
    """The host names that the certificate is for."""
    begin: datetime
    end: datetime
    """The times between which the certificate is valid."""

    def fault(self, now: datetime) -> str:
        """Return why the certificate is not valid now; empty if it is."""
        if now < self.begin:
            return f"is not valid before {self.begin.isoformat()}"
        return f"expired at {self.end.isoformat()}" if now > self.end else ""

    @property
    def trust_domain(self) -> str:
        """The trust domain that peers must be of; empty if the certificate names none."""
        return trust_domain_of(self.identity)

    def host_of(self, role: str) -> str:
        """Return the host name that a peer's certificate must be for: its role in this
        certificate's trust domain.

        Certificates of earlier versions have host names in ``TRUST_DOMAIN`` whatever their SPIFFE
        id says; a process with such a certificate expects the same of its peers.
        """
        domain = self.trust_domain
        named = bool(domain) and host_of(role_of(self.identity), domain) in self.hosts
        return host_of(role, domain) if named else host_of(role)


def watched_certificate(
    files: TlsFiles,
    load: Callable[[], None] = lambda: None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Watched[Certificate]:
    """Watch the files of a certificate and report its expiry as a metric.

    Reading checks that key and certificate match, and calls ``load``, which raises ``UnusableFile``
    or OSError if it can't use them. A certificate that is expired or not yet valid takes the place
    of no valid one; if there is none, it is used, and the log says so as an error.
    """
    paths = [path for path in (files.cert, files.key, files.ca) if path is not None]
    former: Certificate | None = None

    def read() -> Certificate:
        nonlocal former
        leaf, certificate = _read(files)
        at = now()
        fault = certificate.fault(at)
        if fault and former is not None and not former.fault(at):
            raise UnusableFile(f"{files.options}-cert {files.cert} {fault}")
        load()
        if fault:
            log.error("certificate not valid", extra={"file": str(files.cert), "reason": fault})
        log.info("certificate read", extra=_described(leaf, certificate))
        former = certificate
        return certificate

    return reported(Watched(paths, read))


def server_credentials(
    certificate: Watched[Certificate], *, require_clients: bool
) -> grpc.ServerCredentials:
    """Return the credentials of a port. New connections get the current certificate; open ones
    keep theirs.

    With ``require_clients``, clients need a certificate that the CA signed. Raises
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
        changed,  # type: ignore[arg-type] # None means no change
        require_clients,
    )


def role_channel(
    address: str, role: str, mine: Certificate, options: Sequence[tuple[str, int]] = ()
) -> grpc.aio.Channel:
    """Return a channel to ``address`` that trusts only a peer with a certificate of ``role`` in the
    trust domain of ``mine``.

    gRPC's Python API lets a client check nothing but the host name of a server's certificate, so
    that name is the role's, not the address's. Replicas may come and go at any address, and neither
    a drafter nor another mesh's verifier can pose as a verifier.
    """
    credentials = grpc.ssl_channel_credentials(mine.ca, mine.key, mine.chain)
    named = ("grpc.ssl_target_name_override", mine.host_of(role))
    return grpc.aio.secure_channel(address, credentials, options=(*options, named))


def _configuration(certificate: Certificate) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(certificate.key, certificate.chain)], certificate.ca
    )


def _read(files: TlsFiles) -> tuple[x509.Certificate, Certificate]:
    chain, key, ca = files.read()
    ends = ends_of({files.cert: chain} | ({files.ca: ca} if files.ca and ca else {}))
    leaf, *_ = x509.load_pem_x509_certificates(chain)
    with _faults_named(f"{files.options}-cert {files.cert} can't be used"):
        certified = leaf.public_key()
        if not _is_for_tls(certified, leaf.public_key_algorithm_oid):
            raise ValueError(f"its key must be {_KEYS_OF_TLS}")
        identity, hosts = _named(leaf)
    with _faults_named(f"{files.key} must hold a private key in PEM without a password"):
        public_key = load_pem_private_key(key, password=None).public_key()
    if public_key != certified:
        raise UnusableFile(f"the key in {files.key} doesn't match the certificate in {files.cert}")
    valid = leaf.not_valid_before_utc, leaf.not_valid_after_utc
    return leaf, Certificate(chain, key, ca, ends, identity, hosts, *valid)


def _described(leaf: x509.Certificate, certificate: Certificate) -> Mapping[str, str]:
    return {
        "subject": leaf.subject.rfc4514_string(),
        "identity": certificate.identity,
        "serial": f"{leaf.serial_number:x}",
        "expires": leaf.not_valid_after_utc.isoformat(),
    }


_KEYS_OF_TLS = "RSA of 2048 bits or more, or ECDSA on P-256 or P-384"
_CURVES = (ec.SECP256R1, ec.SECP384R1)
_MIN_RSA_BITS = 2048


def _is_for_tls(key: object, algorithm: x509.ObjectIdentifier) -> bool:
    """Return True for the keys that gRPC's TLS and Python's both take, of their own and of peers.
    gRPC tells nobody that it goes on with the former certificate because it can't use the newest.
    """
    if isinstance(key, rsa.RSAPublicKey):
        # A key that its certificate restricts to RSA-PSS is of the same class.
        plain = algorithm == PublicKeyAlgorithmOID.RSAES_PKCS1_v1_5
        return plain and key.key_size >= _MIN_RSA_BITS
    return isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, _CURVES)


@contextmanager
def _faults_named(message: str) -> Iterator[None]:
    """Raise ``UnusableFile`` with ``message`` and the reason for what the block can't parse."""
    try:
        yield
    except _FAULTS as error:
        raise UnusableFile(f"{message}: {error}") from None


def _named(leaf: x509.Certificate) -> tuple[str, frozenset[str]]:
    """Return a certificate's specmesh SPIFFE id (empty if it has none) and its host names."""
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return "", frozenset()
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    identity = uris[0] if len(uris) == 1 and role_of(uris[0]) else ""
    return identity, frozenset(name.lower() for name in names.get_values_for_type(x509.DNSName))

"""A development CA and the certificates that it signs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_DAYS = 3650
CLOCK_SKEW = timedelta(minutes=5)
"""Certificates are valid from this long before now, in case a peer's clock is behind."""


@dataclass(frozen=True, slots=True)
class CertificateSubject:
    """The subject of a certificate: a SPIFFE id, and the host names and addresses it answers at.

    A server that has no role in the mesh, such as Redis, has no SPIFFE id.
    """

    common_name: str
    spiffe_id: str
    hosts: Sequence[str] = ()

    @classmethod
    def of(cls, certificate: x509.Certificate) -> CertificateSubject:
        """Return the subject of ``certificate``. Raises ValueError if it was not made here."""
        try:
            (common_name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            names = certificate.extensions.get_extension_for_class(
                x509.SubjectAlternativeName
            ).value
            (spiffe_id,) = names.get_values_for_type(x509.UniformResourceIdentifier) or [""]
        except (ValueError, x509.ExtensionNotFound):
            raise ValueError("the certificate was not made by specmesh certs") from None
        addresses = names.get_values_for_type(x509.IPAddress)
        hosts = [*names.get_values_for_type(x509.DNSName), *map(str, addresses)]
        return cls(str(common_name.value), spiffe_id, hosts)


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        """The certificate in PEM."""
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The key in PEM, without a password."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


class Authority:
    """Signs certificates."""

    def __init__(self, own: Issued) -> None:
        self.own = own

    @classmethod
    def new(cls, trust_domain: str) -> Authority:
        """Make a new CA for ``trust_domain``, valid for ten years."""
        key = _new_key()
        name = _name(f"specmesh development CA of {trust_domain}")
        builder = _builder(name, name, key, timedelta(days=CA_DAYS)).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        return cls(Issued(_usable(builder, ca=True).sign(key, SHA256()), key))

    @classmethod
    def load(cls, certificate_pem: bytes, key_pem: bytes) -> Authority:
        """Load a CA from PEM. Raises ValueError."""
        key = load_pem_private_key(key_pem, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the key is not an elliptic curve key")
        return cls(Issued(x509.load_pem_x509_certificate(certificate_pem), key))

    def issue(self, bearer: CertificateSubject, valid: timedelta) -> Issued:
        """Issue a certificate for server and client authentication, with a new key."""
        key = _new_key()
        issuer = self.own.certificate
        builder = (
            _builder(_name(bearer.common_name), issuer.subject, key, valid)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage(
                    [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
                ),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.own.key.public_key()),
                critical=False,
            )
            .add_extension(_alternative_names(bearer), critical=False)
        )
        return Issued(_usable(builder, ca=False).sign(self.own.key, SHA256()), key)


def _alternative_names(bearer: CertificateSubject) -> x509.SubjectAlternativeName:
    ids = [x509.UniformResourceIdentifier(bearer.spiffe_id)] if bearer.spiffe_id else []
    return x509.SubjectAlternativeName([*ids, *map(_host, bearer.hosts)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, valid: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + valid)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usable(builder: x509.CertificateBuilder, *, ca: bool) -> x509.CertificateBuilder:
    usage = x509.KeyUsage(
        digital_signature=not ca,
        key_cert_sign=ca,
        crl_sign=ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return builder.add_extension(usage, critical=True)

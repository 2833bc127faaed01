"""Certificates that can't be parsed or that TLS refuses: the former ones stay in use."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.types import (
    CertificateIssuerPrivateKeyTypes,
    PrivateKeyTypes,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from tests.serving.identity.conftest import (
    DAY,
    TRUST_DOMAIN,
    Dial,
    Serve,
    authority_in,
    flags,
    verify,
)
from tests.serving.identity.test_rotation import serial_at, serial_in

from specmesh.serving.certs.folder import renew
from specmesh.serving.identity.certificates import TlsFiles, watched_certificate
from specmesh.serving.identity.roles import spiffe_id
from specmesh.serving.identity.ssl_context import RenewedContext
from specmesh.serving.identity.watched import UnusableFile
from specmesh.serving.startup import CannotStart

P256_OID = bytes.fromhex("06082a8648ce3d030107")
SM2_OID = bytes.fromhex("06082a811ccf5501822d")
VERSION_3 = bytes.fromhex("a003020102")
VERSION_8 = bytes.fromhex("a003020107")


def certificate_of(
    key: CertificateIssuerPrivateKeyTypes, certs: Path, *extensions: x509.ExtensionType
) -> bytes:
    """A certificate of the mesh's CA with a key and extensions as they are."""
    authority = authority_in(certs).own
    builder = (
        x509.CertificateBuilder(extensions=[x509.Extension(e.oid, False, e) for e in extensions])
        .subject_name(x509.Name.from_rfc4514_string("CN=anybody"))
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(authority.certificate.not_valid_before_utc)
        .not_valid_after(authority.certificate.not_valid_after_utc)
    )
    return builder.sign(authority.key, SHA256()).public_bytes(Encoding.PEM)


def pem_of(key: PrivateKeyTypes) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def with_damaged_names(key: ec.EllipticCurvePrivateKey, certs: Path) -> bytes:
    names = x509.UnrecognizedExtension(x509.SubjectAlternativeName.oid, b"\x30\x5c")
    return certificate_of(key, certs, names)


def with_an_unknown_key(key: ec.EllipticCurvePrivateKey, certs: Path) -> bytes:
    known = x509.load_pem_x509_certificate(certificate_of(key, certs))
    der = known.public_bytes(Encoding.DER).replace(P256_OID, SM2_OID)
    return x509.load_der_x509_certificate(der).public_bytes(Encoding.PEM)


@pytest.mark.parametrize("damaged", [with_damaged_names, with_an_unknown_key])
async def test_a_certificate_that_cannot_be_parsed_leaves_the_former_in_use(
    damaged: Callable[[ec.EllipticCurvePrivateKey, Path], bytes],
    certs: Path,
    serve: Serve,
    dial: Dial,
    caplog: pytest.LogCaptureFixture,
):
    settings = flags(certs, "verifier")
    port = await serve(**settings)
    former = serial_in(certs / "verifier.pem")
    settings["tls_cert"].write_bytes(damaged(ec.generate_private_key(ec.SECP256R1()), certs))
    await verify(dial(port, certs, "orchestrator"))
    assert await serial_at(port, certs) == former
    (record,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert record.msg == "changed file not usable"
    assert "--tls-cert" in vars(record)["reason"]
    with pytest.raises(CannotStart, match=f"--tls-cert {settings['tls_cert']} can't be used"):
        await serve(**settings)


@pytest.mark.parametrize(
    "key",
    [
        *(ec.generate_private_key(ec.SECP256K1()), ec.generate_private_key(ec.SECP224R1())),
        *(ec.generate_private_key(ec.SECP521R1()), Ed25519PrivateKey.generate()),
        *(Ed448PrivateKey.generate(), dsa.generate_private_key(2048)),
        rsa.generate_private_key(65537, 1024),
    ],
    ids=["secp256k1", "P-224", "P-521", "Ed25519", "Ed448", "DSA", "RSA of 1024 bits"],
)
def test_a_key_that_tls_refuses_leaves_the_former_certificate_in_use(
    key: CertificateIssuerPrivateKeyTypes, certs: Path, caplog: pytest.LogCaptureFixture
):
    files = TlsFiles(certs / "verifier.pem", certs / "verifier-key.pem", certs / "ca.pem")
    watched = watched_certificate(files)
    former = watched.current()
    files.cert.write_bytes(certificate_of(key, certs))
    files.key.write_bytes(pem_of(key))
    assert watched.current() is former
    assert caplog.messages == ["changed file not usable"]
    with pytest.raises(UnusableFile, match=f"--tls-cert {files.cert} can't be used: its key must"):
        watched_certificate(files).current()


@pytest.mark.parametrize(
    "key",
    [
        *(ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP384R1())),
        rsa.generate_private_key(65537, 2048),
    ],
    ids=["P-256", "P-384", "RSA of 2048 bits"],
)
async def test_both_ends_of_a_call_may_have_every_key_that_is_not_refused(
    key: CertificateIssuerPrivateKeyTypes, certs: Path, serve: Serve, dial: Dial
):
    uri = x509.UniformResourceIdentifier(spiffe_id(TRUST_DOMAIN, "orchestrator"))
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), uri])
    settings = flags(certs, "orchestrator")
    settings["tls_cert"].write_bytes(certificate_of(key, certs, names))
    settings["tls_key"].write_bytes(pem_of(key))
    port = await serve(**settings)
    await verify(dial(port, certs, "orchestrator"))
    assert await serial_at(port, certs) == serial_in(settings["tls_cert"])
    assert RenewedContext(TlsFiles(*settings.values()), require_clients=True)


def test_a_certificate_or_ca_of_an_unknown_version_is_refused_by_the_file(certs: Path):
    files = TlsFiles(certs / "verifier.pem", certs / "verifier-key.pem", certs / "ca.pem")
    for file in (certs / "ca.pem", files.cert):
        der = ssl.PEM_cert_to_DER_cert(file.read_text()).replace(VERSION_3, VERSION_8, 1)
        file.write_text(ssl.DER_cert_to_PEM_cert(der))
        with pytest.raises(UnusableFile, match=f"^{file} holds no certificate"):
            watched_certificate(files).current()


async def test_a_port_that_cannot_be_opened_over_tls_names_the_certificate_too(
    certs: Path, serve: Serve
):
    port = await serve(**flags(certs, "verifier"))
    with pytest.raises(CannotStart, match="--port takes another, and --tls-cert"):
        await serve(port=int(port), **flags(certs, "verifier"))


def test_a_chain_that_the_tls_of_http_refuses_leaves_the_former_in_use(
    certs: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    files = TlsFiles(certs / "gateway.pem", certs / "gateway-key.pem", None)
    context = RenewedContext(files, require_clients=False)

    def used() -> ssl.SSLContext:
        return context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True).context

    former = used()
    weak = certificate_of(rsa.generate_private_key(65537, 1024), certs)
    files.cert.write_bytes(files.cert.read_bytes() + weak)
    assert [used(), used()] == [former, former]
    assert caplog.messages == ["certificate read", "changed file not usable"]
    with pytest.raises(UnusableFile, match=f"TLS can't use --tls-cert {files.cert}: .*TOO_SMALL"):
        RenewedContext(files, require_clients=False)
    renew(certs, DAY)
    assert used() is not former

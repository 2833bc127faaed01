"""``specmesh certs``."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from typer.testing import CliRunner

from specmesh.serving.certs.__main__ import app
from specmesh.serving.identity.roles import ROLES, host_of


def certs(*arguments: str | Path, status: int = 0) -> str:
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code == status, done.output
    return str(done.output)


def read(folder: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / f"{name}.pem").read_bytes())


def names(certificate: x509.Certificate, kind: type[x509.GeneralName]) -> list[str]:
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return [*map(str, found.value.get_values_for_type(kind))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    certs("--out", tmp_path / "certs", "--host", "mesh.example", "--client", "alice")
    return tmp_path / "certs"


def test_every_role_gets_a_certificate_that_the_ca_signed(folder: Path):
    ca = read(folder, "ca")
    for role in ROLES:
        certificate = read(folder, role)
        certificate.verify_directly_issued_by(ca)
        (uri,) = names(certificate, x509.UniformResourceIdentifier)
        assert uri == f"spiffe://specmesh.internal/specmesh/{role}"


def test_servers_answer_at_loopback_the_named_hosts_and_the_name_of_their_role(folder: Path):
    verifier = read(folder, "verifier")
    hosts = {host_of("verifier"), "localhost", "mesh.example"}
    assert set(names(verifier, x509.DNSName)) == hosts
    assert set(names(verifier, x509.IPAddress)) == {"127.0.0.1", "::1"}
    assert names(read(folder, "client"), x509.DNSName) == []


def test_a_trust_domain_is_in_ids_and_in_the_names_of_roles(tmp_path: Path):
    certs("--out", tmp_path, "--trust-domain", "Staging.example")
    verifier = read(tmp_path, "verifier")
    (uri,) = names(verifier, x509.UniformResourceIdentifier)
    assert uri == "spiffe://staging.example/specmesh/verifier"
    assert "verifier.staging.example" in names(verifier, x509.DNSName)
    # Else it could pose as one of a mesh that chose no domain.
    assert host_of("verifier") not in names(verifier, x509.DNSName)


def test_a_named_client_has_an_identity_of_its_own(folder: Path):
    (uri,) = names(read(folder, "client-alice"), x509.UniformResourceIdentifier)
    assert uri == "spiffe://specmesh.internal/specmesh/alice/client"


def test_a_server_that_is_no_role_has_its_names_and_no_identity(tmp_path: Path):
    out = tmp_path / "certs"
    services = ("--service", "redis=redis,redis-0.redis", "--service", "traces")
    certs("--out", out, *services)
    for name, hosts in (("redis", ["redis", "redis-0.redis"]), ("traces", ["traces"])):
        assert names(read(out, name), x509.DNSName) == hosts
        assert names(read(out, name), x509.UniformResourceIdentifier) == []
    before = read(out, "redis")
    certs("--out", out, "--renew")
    assert read(out, "redis").serial_number != before.serial_number
    assert names(read(out, "redis"), x509.DNSName) == ["redis", "redis-0.redis"]


def test_keys_are_for_their_owner_alone(folder: Path):
    keys = [*folder.glob("*-key.pem")]
    assert len(keys) == len(ROLES) + 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}


def test_nothing_is_overwritten_unless_asked(folder: Path):
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert "--force" in certs("--out", folder, status=1)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    certs("--out", folder, "--force")
    assert read(folder, "ca").serial_number not in {
        x509.load_pem_x509_certificate(data).serial_number
        for path, data in before.items()
        if path.name == "ca.pem"
    }


def test_renewed_are_the_certificates_for_the_same_bearers_and_not_the_ca(folder: Path):
    stems = [*ROLES, "client-alice"]
    before = {stem: read(folder, stem) for stem in ["ca", *stems]}
    certs("--out", folder, "--renew", "--days", "7")
    assert read(folder, "ca") == before["ca"]
    for stem in stems:
        renewed = read(folder, stem)
        assert renewed.serial_number != before[stem].serial_number
        assert renewed.subject == before[stem].subject
        for kind in (x509.DNSName, x509.IPAddress, x509.UniformResourceIdentifier):
            assert names(renewed, kind) == names(before[stem], kind)
        left = renewed.not_valid_after_utc - datetime.now(UTC)
        assert timedelta(days=6.9) < left < timedelta(days=7.1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--renew", "--force"),
        ("--renew", "--host", "x"),
        ("--renew", "--trust-domain", "x"),
        ("--days", "0"),
        ("--trust-domain", "a/b"),
        ("--client", "../x"),
        ("--client", ""),
        ("--client", "key"),  # client-key.pem is the key of the role client
        ("--client", "alice", "--client", "alice-key"),
        ("--host", "münchen.example"),
        ("--host", ""),
        ("--host", "http://x"),
        ("--host", "x:80"),
        ("--host", "a b"),
        ("--host", "1.2.3.4,5.6.7.8"),
        ("--host", "*"),
        ("--host", "a.*.example"),
        ("--service", "redis=redis:6379"),
        ("--service", "verifier=redis"),
        ("--service", "client-alice"),
        ("--service", "ca"),
        ("--service", "redis=a,,b"),
        ("--service", "../x"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...], tmp_path: Path):
    certs("--out", tmp_path / "certs", *arguments, status=2)
    assert not (tmp_path / "certs").exists()


def test_a_host_is_a_name_any_name_below_another_or_an_ip_address(tmp_path: Path):
    hosts = ["mesh-1.a_b.example", "*.mesh.example", "10.0.0.7", "2001:db8::7"]
    certs("--out", tmp_path, *(word for host in hosts for word in ("--host", host)))
    gateway = read(tmp_path, "gateway")
    known = {*names(gateway, x509.DNSName), *names(gateway, x509.IPAddress)}
    assert set(hosts) < known


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--host", "x:80"), ("--client", "key"), ("--client", "../x"), ("--service", "ca")),
        *(("--service", "redis=a,,b"), ("--service", "../x"), ("--trust-domain", "a/b")),
    ],
)
def test_what_is_refused_is_named_by_its_option(option: str, value: str, tmp_path: Path):
    said = certs("--out", tmp_path / "certs", option, value, status=2)
    assert f"Invalid value for {option}: " in said


def test_without_a_ca_nothing_can_be_renewed(tmp_path: Path):
    assert "cannot renew" in certs("--out", tmp_path, "--renew", status=1)

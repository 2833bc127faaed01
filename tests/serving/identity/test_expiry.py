"""Until when certificates are valid is a metric: that of each file, as the process uses it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from tests.metrics import Recorded, recorded
from tests.serving.identity.conftest import DAY, Serve, authority_in, client_of, flags, put

from specmesh.gateway.mesh import KnownOrchestrators
from specmesh.gateway.settings import GatewaySettings
from specmesh.orchestrator.__main__ import OrchestratorService
from specmesh.orchestrator.settings import OrchestratorSettings
from specmesh.serving import conventions as names
from specmesh.serving.certs.authority import Authority
from specmesh.serving.identity import expiry
from specmesh.serving.metrics import CERTIFICATE_EXPIRY

__all__ = ["recorded"]


@pytest.fixture
def told(recorded: Recorded) -> Recorded:
    expiry.observe()
    return recorded


def ends(told: Recorded, folder: Path) -> Mapping[tuple[str, str], float]:
    """The end of each certificate in files of ``folder``, by file and subject."""
    latest = {}
    for point in told.points(CERTIFICATE_EXPIRY.name):
        file = Path(str(point.attributes[names.CERTIFICATE_FILE]))
        if file.parent == folder:
            latest[file.name, str(point.attributes[names.CERTIFICATE_SUBJECT])] = point.value
    return latest


def end_in(certs: Path, name: str) -> float:
    pem = (certs / f"{name}.pem").read_bytes()
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()


CA = ("ca.pem", "CN=specmesh development CA of test.internal")
VERIFIER = ("verifier.pem", "CN=verifier")


async def test_it_is_that_of_the_certificate_and_the_ca_of_a_port(
    certs: Path, serve: Serve, told: Recorded
):
    await serve(**flags(certs, "verifier"))
    assert ends(told, certs) == {VERIFIER: end_in(certs, "verifier"), CA: end_in(certs, "ca")}


async def test_a_renewed_certificate_counts_once_it_can_be_used(
    certs: Path, serve: Serve, told: Recorded
):
    await serve(**flags(certs, "verifier"))
    before = end_in(certs, "verifier")
    renewed = authority_in(certs).issue(client_of("verifier"), 30 * DAY)
    key = (certs / "verifier-key.pem").read_bytes()
    put(certs, "verifier", renewed)
    (certs / "verifier-key.pem").write_bytes(key)  # of the former: the new one is of no use yet
    assert ends(told, certs)[VERIFIER] == before
    put(certs, "verifier", renewed)
    assert ends(told, certs)[VERIFIER] == end_in(certs, "verifier") > before


async def test_two_cas_of_one_name_in_a_file_are_one_that_is_being_replaced(
    certs: Path, serve: Serve, told: Recorded
):
    other = Authority.new("other.internal")
    newer = Authority.new("test.internal")
    both = [newer.own.certificate_pem, (certs / "ca.pem").read_bytes(), other.own.certificate_pem]
    (certs / "ca.pem").write_bytes(b"".join(both))
    await serve(**flags(certs, "verifier"))
    found = ends(told, certs)
    assert found[CA] == newer.own.certificate.not_valid_after_utc.timestamp()
    assert ("ca.pem", "CN=specmesh development CA of other.internal") in found


async def test_what_a_gateway_shows_the_mesh_is_told_too(certs: Path, told: Recorded):
    mesh = KnownOrchestrators(
        GatewaySettings(
            orchestrators="localhost:1",
            mesh_ca=certs / "ca.pem",
            mesh_cert=certs / "gateway.pem",
            mesh_key=certs / "gateway-key.pem",
        )
    )
    assert set(ends(told, certs)) == {CA, ("gateway.pem", "CN=gateway")}
    await mesh.aclose()
    del mesh


async def test_what_is_shown_to_redis_is_told_too(certs: Path, told: Recorded):
    put(certs, "redis", authority_in(certs).issue(client_of("client"), timedelta(hours=1)))
    service = OrchestratorService(
        OrchestratorSettings(
            verifiers="localhost:1",
            redis_url="rediss://localhost:1",
            redis_ca=certs / "ca.pem",
            redis_cert=certs / "redis.pem",
            redis_key=certs / "redis-key.pem",
        )
    )
    assert ends(told, certs) == {
        CA: end_in(certs, "ca"),
        ("redis.pem", "CN=client"): end_in(certs, "redis"),
    }
    await service.stop()

"""Plain text stays on loopback unless its flag is given."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.serving.identity.conftest import Serve, Settings, flags
from tests.serving.process.conftest import Launch, launch

from specmesh.client.connections import credentials
from specmesh.gateway.__main__ import make_server
from specmesh.gateway.settings import GatewaySettings
from specmesh.orchestrator.__main__ import OrchestratorService
from specmesh.orchestrator.settings import OrchestratorSettings
from specmesh.serving.loopback import is_loopback, is_loopback_address
from specmesh.serving.startup import CannotStart

__all__ = ["launch"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_plain_text_beyond_loopback_is_refused(host: str, serve: Serve):
    with pytest.raises(CannotStart, match="--plaintext-beyond-loopback"):
        await serve(host=host)


async def test_the_process_ends_and_says_why(launch: Launch):
    process = await launch("--host", "0.0.0.0", until="cannot start")
    assert "--plaintext-beyond-loopback" in process.log[-1]["reason"]
    assert await process.ended() == 1


async def test_with_tls_or_the_flag_it_is_not(serve: Serve, certs: Path):
    assert await serve(host="0.0.0.0", **flags(certs, "verifier"))
    assert await serve(host="0.0.0.0", plaintext_beyond_loopback=True)


@pytest.mark.parametrize(
    "peers",
    [
        {"verifiers": "127.0.0.1:1,10.0.0.1:50051"},
        {"verifiers": "[::1]:1", "drafters": "10.0.0.1:50051"},
        {"verifiers": "localhost:1", "confidence": "10.0.0.1:50051"},
    ],
)
async def test_replicas_elsewhere_are_not_called_in_plain_text(certs: Path, peers: dict[str, str]):
    with_certificate = flags(certs, "orchestrator")
    del with_certificate["tls_ca"]
    for tls in ({}, with_certificate):
        service = OrchestratorService(OrchestratorSettings(**peers, **tls))
        with pytest.raises(CannotStart, match=r"^10\.0\.0\.1:50051 is not loopback: give --tls-ca"):
            await service.start()
        await service.stop()


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        *(("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True)),
        *(("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("example.org", False)),
    ],
)
def test_what_is_loopback(host: str, loopback: bool):
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        *(("localhost:1", True), ("127.8.8.8:1", True), ("[::1]:1", True), ("10.0.0.1:1", False)),
        *(("dns:localhost:1", True), ("dns:///localhost:1", True), ("dns:10.0.0.1:1", False)),
        *(("ipv4:127.0.0.1:1", True), ("ipv6:[::1]:1", True), ("ipv4:10.0.0.1:1", False)),
        *(("unix:/tmp/mesh", True), ("unix-abstract:mesh", True), ("unixes.test:1", False)),
        *(("dns://10.0.0.1/localhost:1", False), ("127.0.0.1.evil.test:1", False)),
    ],
)
def test_servers_and_the_sdk_agree_on_the_addresses_of_this_machine(address: str, loopback: bool):
    assert is_loopback_address(address) is loopback
    assert credentials.is_loopback(address) is loopback


def test_a_gateway_calls_this_machine_in_plain_text_under_every_scheme():
    addresses = "dns:///localhost:1,ipv4:127.0.0.1:1,unix:/tmp/mesh"
    assert make_server(GatewaySettings(orchestrators=addresses))
    with pytest.raises(CannotStart, match=r"^ipv4:10\.0\.0\.1:1 is not loopback: give --mesh-ca"):
        make_server(GatewaySettings(orchestrators="ipv4:10.0.0.1:1"))


@pytest.mark.parametrize("given", [{"tls_cert"}, {"tls_key"}, {"tls_ca"}, {"tls_ca", "tls_key"}])
def test_files_that_go_together_are_given_together(given: set[str]):
    with pytest.raises(ValueError, match="--tls-cert and --tls-key"):
        Settings(**dict.fromkeys(given, Path("file")))


async def test_a_process_logs_which_certificate_it_serves_with(
    serve: Serve, certs: Path, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.INFO):
        await serve(**flags(certs, "verifier"))
    (record,) = [each for each in caplog.records if each.msg == "certificate read"]
    assert vars(record)["subject"] == "CN=verifier"

"""HTTPS at the door, and mTLS on the way to the orchestrators."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
from contextlib import asynccontextmanager
from datetime import timedelta

import grpc
import httpx2
import pytest
from cryptography import x509
from tests.client.conftest import FakeOrchestrator, whole_answer
from tests.serving.identity.conftest import (
    DAY,
    TRUST_DOMAIN,
    authority_in,
    certs,
    client_of,
    flags,
    issued,
    put,
)

from specmesh.gateway.mesh import KnownOrchestrators
from specmesh.gateway.settings import GatewaySettings
from specmesh.serving.certs.authority import CertificateSubject
from specmesh.serving.certs.folder import bearers, make
from specmesh.serving.identity.roles import spiffe_id
from specmesh.serving.identity.watched import UnusableFile
from specmesh.v1.generation_pb2_grpc import add_GenerationServiceServicer_to_server

__all__ = ["certs", "issued"]

ASKED = {"model": "toy", "prompt": "hello"}


def trusting(certs, name=None):
    """What a client of the door trusts, and shows of itself."""
    context = ssl.create_default_context(cafile=str(certs / "ca.pem"))
    if name is not None:
        context.load_cert_chain(certs / f"{name}.pem", certs / f"{name}-key.pem")
    return context


async def serial(url, context):
    """The serial number of the certificate that a new connection is shown."""
    host, port = url.rpartition("/")[2].split(":")
    _, writer = await asyncio.open_connection(host, port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return x509.load_der_x509_certificate(shown).serial_number


@asynccontextmanager
async def over_tls(certs):
    """An orchestrator that lets in who has a certificate of the mesh."""
    fake = FakeOrchestrator()
    server = grpc.aio.server()
    add_GenerationServiceServicer_to_server(fake, server)
    pair = [(certs / f"orchestrator{part}.pem").read_bytes() for part in ("-key", "")]
    credentials = grpc.ssl_server_credentials(
        [tuple(pair)], (certs / "ca.pem").read_bytes(), require_client_auth=True
    )
    fake.address = f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', credentials)}"
    await server.start()
    try:
        yield fake
    finally:
        await server.stop(None)


async def test_the_door_speaks_https(open_gateway, orchestrator, certs):
    orchestrator.generate_scripts = [whole_answer]
    settings = flags(certs, "gateway") | {"tls_ca": None}
    gateway = await open_gateway(orchestrator.address, **settings)
    async with httpx2.AsyncClient(verify=trusting(certs)) as http:
        url = gateway.url.replace("http:", "https:")
        assert (await http.post(f"{url}/v1/completions", json=ASKED)).status_code == 200
    with pytest.raises(httpx2.HTTPError):
        await gateway.http.get("/healthz")


async def test_a_changed_certificate_is_taken_up_by_new_connections(
    open_gateway, orchestrator, certs
):
    settings = flags(certs, "gateway") | {"tls_ca": None}
    gateway = await open_gateway(orchestrator.address, **settings)
    before = await serial(gateway.url, trusting(certs))
    put(certs, "gateway", authority_in(certs).issue(client_of("gateway"), DAY))
    os.utime(certs / "gateway.pem")
    after = await serial(gateway.url, unchecked())
    assert before != after
    assert after == await serial(gateway.url, unchecked())


def unchecked():
    """Connects to whoever it is: the new certificate is for no host name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def test_a_door_with_a_ca_lets_in_who_has_a_certificate(open_gateway, orchestrator, certs):
    gateway = await open_gateway(orchestrator.address, **flags(certs, "gateway"))
    url = gateway.url.replace("http:", "https:")
    async with httpx2.AsyncClient(verify=trusting(certs, "client-alice")) as http:
        assert (await http.get(f"{url}/healthz")).status_code == 200
    async with httpx2.AsyncClient(verify=trusting(certs)) as http:
        with pytest.raises(httpx2.HTTPError):
            await http.get(f"{url}/healthz")


async def test_a_certificate_of_another_mesh_is_refused(open_gateway, orchestrator, certs):
    orchestrator.generate_scripts = [whole_answer] * 2
    others = {
        "staging": spiffe_id("staging.test", "client"),
        "program": "https://example.org/program",  # no part of any mesh
    }
    for name, uri in others.items():
        put(certs, name, authority_in(certs).issue(CertificateSubject(name, uri), DAY))
    gateway = await open_gateway(orchestrator.address, **flags(certs, "gateway"))
    url = gateway.url.replace("http:", "https:") + "/v1/completions"
    told = {}
    for name in ("client-alice", "program", "staging"):
        async with httpx2.AsyncClient(verify=trusting(certs, name)) as http:
            for _ in range(1 + (name == "staging")):  # a connection is one peer's for ever
                told[name] = await http.post(url, json=ASKED)
    assert [each.status_code for each in told.values()] == [200, 200, 403]
    assert told["staging"].json()["error"]["code"] == "wrong_trust_domain"


def healthy(url, context, session=None):
    """Return whether a client gets an answer, its session, and whether that was resumed."""
    host, port = url.rpartition("/")[2].split(":")
    try:
        with (
            socket.create_connection((host, int(port)), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname=host, session=session) as connection,
        ):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            answer = connection.recv(2**16)
            return answer.startswith(b"HTTP/1.1 200"), connection.session, connection.session_reused
    except (ssl.SSLError, ConnectionError):
        return False, None, False


TLS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


def client(certs, version):
    """Alice with one version of TLS. She does not mind who answers."""
    context = unchecked()
    context.minimum_version = context.maximum_version = version
    context.load_cert_chain(certs / "client-alice.pem", certs / "client-alice-key.pem")
    return context


@pytest.mark.parametrize("version", TLS)
async def test_who_was_known_by_a_former_ca_resumes_no_session(
    open_gateway, orchestrator, certs, version
):
    gateway = await open_gateway(orchestrator.address, **flags(certs, "gateway"))
    context = client(certs, version)
    is_let_in, session, _ = await asyncio.to_thread(healthy, gateway.url, context)
    assert is_let_in
    make(certs, TRUST_DOMAIN, bearers(TRUST_DOMAIN, (), ("alice",)), DAY, force=True)
    assert not (await asyncio.to_thread(healthy, gateway.url, context, session))[0]
    assert (await asyncio.to_thread(healthy, gateway.url, client(certs, version)))[0]


async def test_a_session_outlives_no_certificate_by_being_resumed_again_and_again(
    open_gateway, orchestrator, certs
):
    gateway = await open_gateway(orchestrator.address, **flags(certs, "gateway"))
    context = client(certs, ssl.TLSVersion.TLSv1_3)
    _, session, _ = await asyncio.to_thread(healthy, gateway.url, context)
    is_let_in, _, is_resumed = await asyncio.to_thread(healthy, gateway.url, context, session)
    assert (is_let_in, is_resumed) == (True, False)


async def test_orchestrators_are_called_over_mtls(open_gateway, certs):
    async with over_tls(certs) as orchestrator:
        orchestrator.generate_scripts = [whole_answer]
        gateway = await open_gateway(
            orchestrator.address,
            mesh_ca=certs / "ca.pem",
            mesh_cert=certs / "gateway.pem",
            mesh_key=certs / "gateway-key.pem",
        )
        assert (await gateway.post("/v1/completions", ASKED)).status_code == 200
        stranger = await open_gateway(
            orchestrator.address, mesh_ca=certs / "ca.pem", mesh_trust_domain=TRUST_DOMAIN
        )
        assert (await stranger.post("/v1/completions", ASKED)).status_code == 503


def with_the_key_of_another(certs):
    shutil.copy(certs / "client-alice-key.pem", certs / "gateway-key.pem")


def expired(certs):
    put(certs, "gateway", authority_in(certs).issue(client_of("gateway"), -timedelta(minutes=1)))


@pytest.mark.parametrize("changed", [with_the_key_of_another, expired])
async def test_the_former_certificate_stays_in_use_while_the_changed_is_of_no_use(
    open_gateway, certs, caplog, changed
):
    async with over_tls(certs) as orchestrator:
        orchestrator.generate_scripts = [whole_answer] * 2
        gateway = await open_gateway(
            orchestrator.address,
            mesh_ca=certs / "ca.pem",
            mesh_cert=certs / "gateway.pem",
            mesh_key=certs / "gateway-key.pem",
        )
        changed(certs)
        # The second goes through another client of the gateway, with the caller's token.
        for headers in ({}, {"authorization": "Bearer token"}):
            answer = await gateway.post("/v1/completions", ASKED, **headers)
            assert answer.status_code == 200
    assert caplog.messages == ["changed file not usable"]


async def test_files_for_the_mesh_that_are_of_no_use_are_refused_at_the_start(certs):
    files = {"mesh_cert": certs / "gateway.pem", "mesh_key": certs / "gateway-key.pem"}
    with_the_key_of_another(certs)
    for given, told in (
        (files | {"mesh_ca": certs / "ca.pem"}, r"gateway-key\.pem doesn't match"),
        ({"mesh_ca": certs / "gateway-key.pem"}, "^--mesh-ca: "),
    ):
        with pytest.raises(UnusableFile, match=told):
            KnownOrchestrators(GatewaySettings(**given, mesh_trust_domain="x.test"))


async def test_orchestrators_of_another_mesh_are_not_believed(open_gateway, certs):
    mine = {"mesh_ca": certs / "ca.pem"} | {
        f"mesh_{part}": certs / f"gateway{end}.pem" for part, end in (("cert", ""), ("key", "-key"))
    }
    put(
        certs,
        "orchestrator",
        authority_in(certs).issue(bearers("x.test", (), ())["orchestrator"], DAY),
    )
    async with over_tls(certs) as orchestrator:
        orchestrator.generate_scripts = [whole_answer]
        gateway = await open_gateway(orchestrator.address, **mine)
        assert (await gateway.post("/v1/completions", ASKED)).status_code == 503
        told = await open_gateway(orchestrator.address, **mine, mesh_trust_domain="x.test")
        assert (await told.post("/v1/completions", ASKED)).status_code == 200

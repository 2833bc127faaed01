"""Meshes whose certificates one CA signs are told apart by their trust domains."""

from __future__ import annotations

import logging
from pathlib import Path

import grpc
import grpc.aio
import pytest
from tests.serving.identity.conftest import (
    DAY,
    TRUST_DOMAIN,
    VERIFIER,
    Dial,
    Serve,
    Service,
    authority_in,
    flags,
    list_models,
    put,
    refusal,
    verify,
)

from specmesh.serving.certs.authority import CertificateSubject
from specmesh.serving.certs.folder import bearers
from specmesh.serving.errors import error_info
from specmesh.serving.identity.certificates import TlsFiles, role_channel, watched_certificate
from specmesh.serving.identity.roles import host_of, spiffe_id, trust_domain_of

WRONG_TRUST_DOMAIN = (grpc.StatusCode.PERMISSION_DENIED, "WRONG_TRUST_DOMAIN")
NOT_BELIEVED = (grpc.StatusCode.UNAVAILABLE, None)
STAGING = "staging.internal"


@pytest.fixture
def certs(certs: Path) -> Path:
    """Those of the mesh, and of a staging mesh (``staging-ROLE``), by the same CA."""
    for name, bearer in bearers(STAGING, (), ()).items():
        put(certs, f"staging-{name}", authority_in(certs).issue(bearer, DAY))
    return certs


def mine(certs: Path, name: str) -> TlsFiles:
    return TlsFiles(**{key.removeprefix("tls_"): file for key, file in flags(certs, name).items()})


async def call_verifier(certs: Path, port: str, name: str) -> bytes:
    """What an orchestrator with the certificate ``name`` does."""
    certificate = watched_certificate(mine(certs, name)).current()
    alone = [("grpc.use_local_subchannel_pool", 1)]
    async with role_channel(f"localhost:{port}", "verifier", certificate, alone) as channel:
        return await verify(channel)


@pytest.mark.parametrize(("server", "caller"), [("", "staging-"), ("staging-", "")])
async def test_a_caller_of_another_mesh_is_refused(
    server: str, caller: str, certs: Path, serve: Serve, dial: Dial, service: Service
):
    port = await serve(**flags(certs, f"{server}orchestrator"))
    for role, call in (("client", list_models), ("gateway", list_models), ("orchestrator", verify)):
        channel = dial(port, certs, f"{caller}{role}")
        assert await refusal(call(channel)) == WRONG_TRUST_DOMAIN
        await call(dial(port, certs, f"{server}{role}"))
    assert len(service.callers) == 3


async def test_a_refusal_names_both_domains(certs: Path, serve: Serve, dial: Dial):
    port = await serve(**flags(certs, "orchestrator"))
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await list_models(dial(port, certs, "staging-client"))
    info = error_info(raised.value)
    assert info is not None
    assert dict(info.metadata) == {"trust_domain": STAGING, "expected": TRUST_DOMAIN}


async def test_a_replica_of_another_mesh_is_not_believed(certs: Path, serve: Serve):
    port = await serve(**flags(certs, "staging-verifier"))
    assert await refusal(call_verifier(certs, port, "orchestrator")) == NOT_BELIEVED
    await call_verifier(certs, port, "staging-orchestrator")


async def test_the_spelling_of_a_domain_does_not_matter(certs: Path, serve: Serve, dial: Dial):
    shouting = CertificateSubject("client", spiffe_id(TRUST_DOMAIN.upper(), "client"))
    put(certs, "loud", authority_in(certs).issue(shouting, DAY))
    await list_models(dial(await serve(**flags(certs, "orchestrator")), certs, "loud"))


async def test_certificates_made_before_names_had_domains_still_work(
    certs: Path, serve: Serve, service: Service
):
    for role in ("verifier", "orchestrator"):
        former = CertificateSubject(
            role, spiffe_id(TRUST_DOMAIN, role), (host_of(role), "localhost")
        )
        put(certs, role, authority_in(certs).issue(former, DAY))
    port = await serve(**flags(certs, "verifier"))
    await call_verifier(certs, port, "orchestrator")
    assert await refusal(call_verifier(certs, port, "staging-orchestrator")) == NOT_BELIEVED
    assert len(service.callers) == 1


async def test_a_port_without_a_domain_lets_in_any_and_says_so(
    certs: Path, serve: Serve, dial: Dial, caplog: pytest.LogCaptureFixture
):
    put(
        certs,
        "public",
        authority_in(certs).issue(CertificateSubject("x", "https://x", ("localhost",)), DAY),
    )
    with caplog.at_level(logging.WARNING):
        port = await serve(**flags(certs, "public"))
    assert "callers of any trust domain are let in" in caplog.messages
    for name in ("client", "staging-client"):
        await list_models(dial(port, certs, name))


async def test_a_renewed_certificate_may_change_the_domain(certs: Path, serve: Serve, dial: Dial):
    port = await serve(**flags(certs, "verifier"))
    put(certs, "verifier", authority_in(certs).issue(bearers(STAGING, (), ())["verifier"], DAY))
    await verify(dial(port, certs, "staging-orchestrator"))
    assert await refusal(verify(dial(port, certs, "orchestrator"))) == WRONG_TRUST_DOMAIN


async def test_an_open_call_is_refused_too(certs: Path, serve: Serve, dial: Dial):
    channel = dial(await serve(**flags(certs, "verifier")), certs, "staging-orchestrator")
    call = channel.stream_stream(f"{VERIFIER}VerifyEach")(timeout=10)
    assert await refusal(call.read()) == WRONG_TRUST_DOMAIN


@pytest.mark.parametrize(
    ("identity", "domain"),
    [
        ("spiffe://TD.example/specmesh/verifier", "td.example"),
        ("spiffe://td/ns/prod/sa/verifier", ""),
        ("https://td/specmesh/verifier", ""),
        ("", ""),
    ],
)
def test_the_trust_domain_is_the_host_of_one_of_our_ids(identity: str, domain: str):
    assert trust_domain_of(identity) == domain

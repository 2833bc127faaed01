"""A certificate's role must fit the method that is called."""

from __future__ import annotations

import importlib
import pkgutil
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.serving.identity.conftest import (
    DAY,
    VERIFIER,
    Dial,
    Serve,
    Service,
    authority_in,
    client_of,
    flags,
    list_models,
    put,
    refusal,
    verify,
)

import specmesh.mesh.v1alpha1
import specmesh.v1
from specmesh.serving.certs.authority import Authority, CertificateSubject
from specmesh.serving.errors import error_info
from specmesh.serving.identity.roles import CALLERS, may_call, role_of

GARBAGE = b"\xff\xff\xff\xff"
WRONG_ROLE = (grpc.StatusCode.PERMISSION_DENIED, "WRONG_ROLE")
NOT_LET_IN = (grpc.StatusCode.UNAVAILABLE, None)
"""TLS ends the connection before there is a call that could be told anything."""


async def test_the_right_role_is_let_in_and_known_by_its_spiffe_id(
    certs: Path, serve: Serve, dial: Dial, service: Service
):
    port = await serve(**flags(certs, "orchestrator"))
    await list_models(dial(port, certs, "client-alice"))
    await verify(dial(port, certs, "orchestrator"))
    assert service.callers == [
        "spiffe://test.internal/specmesh/alice/client",
        "spiffe://test.internal/specmesh/orchestrator",
    ]


async def test_the_identity_holds_for_every_message_of_a_stream_and_the_tasks_behind_it(
    certs: Path, serve: Serve, dial: Dial, service: Service
):
    port = await serve(**flags(certs, "orchestrator"))
    calls = [
        dial(port, certs, f"client-{name}").unary_stream("/specmesh.v1.GenerationService/Generate")(
            b"", timeout=10
        )
        for name in ("alice", "bob")
    ]
    for call in calls:
        assert len([each async for each in call]) == 2
    call = dial(port, certs, "orchestrator").stream_stream(f"{VERIFIER}VerifyEach")(timeout=10)
    for _ in range(2):
        await call.write(b"")
        await call.read()
    await call.done_writing()
    names = ("alice/client", "bob/client", "orchestrator")
    expected = [f"spiffe://test.internal/specmesh/{name}" for name in names for _ in range(2)]
    assert sorted(service.callers) == expected


@pytest.mark.parametrize("role", ["drafter", "verifier", "confidence", "client", "gateway"])
async def test_a_wrong_role_is_refused_before_its_request_is_decoded(
    role: str, certs: Path, serve: Serve, dial: Dial, service: Service
):
    port = await serve(**flags(certs, "verifier"))
    channel = dial(port, certs, role)
    assert await refusal(verify(channel, GARBAGE)) == WRONG_ROLE
    call = channel.stream_stream(f"{VERIFIER}VerifyEach")(timeout=10)
    assert await refusal(call.read()) == WRONG_ROLE  # nothing was sent
    assert service.callers == []


async def test_a_refusal_names_role_and_method(certs: Path, serve: Serve, dial: Dial):
    port = await serve(**flags(certs, "verifier"))
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await verify(dial(port, certs, "client"))
    info = error_info(raised.value)
    assert info is not None
    method = VERIFIER.strip("/") + "/Verify"
    assert dict(info.metadata) == {"role": "client", "method": method}


async def test_a_certificate_without_a_role_is_refused(certs: Path, serve: Serve, dial: Dial):
    port = await serve(**flags(certs, "orchestrator"))
    put(
        certs,
        "other",
        authority_in(certs).issue(CertificateSubject("other", "spiffe://x/other"), DAY),
    )
    assert await refusal(list_models(dial(port, certs, "other"))) == WRONG_ROLE


@pytest.mark.parametrize("role", ["client", "drafter"])
async def test_health_is_for_everybody_with_a_certificate(
    role: str, certs: Path, serve: Serve, dial: Dial
):
    port = await serve(**flags(certs, "verifier"))
    stub = health_pb2_grpc.HealthStub(dial(port, certs, role))
    response = await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)
    assert response.status == health_pb2.HealthCheckResponse.SERVING


async def test_without_a_certificate_there_is_no_connection(
    certs: Path, serve: Serve, dial: Dial, service: Service
):
    port = await serve(**flags(certs, "orchestrator"))
    assert await refusal(list_models(dial(port, certs, None))) == NOT_LET_IN
    assert service.callers == []


async def test_an_expired_certificate_makes_no_connection(certs: Path, serve: Serve, dial: Dial):
    port = await serve(**flags(certs, "orchestrator"))
    put(certs, "old", authority_in(certs).issue(client_of("client"), timedelta(seconds=-1)))
    assert await refusal(list_models(dial(port, certs, "old"))) == NOT_LET_IN


async def test_a_certificate_of_another_ca_makes_no_connection(
    certs: Path, serve: Serve, dial: Dial
):
    port = await serve(**flags(certs, "orchestrator"))
    put(certs, "stranger", Authority.new("test.internal").issue(client_of("client"), DAY))
    assert await refusal(list_models(dial(port, certs, "stranger"))) == NOT_LET_IN


async def test_without_a_ca_the_port_speaks_tls_to_everybody(
    certs: Path, serve: Serve, dial: Dial, service: Service
):
    port = await serve(**(flags(certs, "orchestrator") | {"tls_ca": None}))
    await list_models(dial(port, certs, None))
    assert service.callers == [""]


@pytest.mark.parametrize(
    ("identity", "role"),
    [
        ("spiffe://td/specmesh/verifier", "verifier"),
        ("spiffe://td/specmesh/alice/client", "client"),
        ("spiffe://td/ns/prod/sa/verifier", ""),
        ("spiffe://td/specmesh", ""),
        ("https://td/specmesh/verifier", ""),
        ("spiffe://td/specmesh/gateway|token:alice/client", ""),
        ("", ""),
    ],
)
def test_the_role_is_the_last_segment_of_one_of_our_ids(identity: str, role: str):
    assert role_of(identity) == role


def test_the_table_has_every_service_of_the_protocol_and_no_other():
    services = set()
    for package in (specmesh.v1, specmesh.mesh.v1alpha1):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if module.name.endswith("_pb2"):
                descriptor = importlib.import_module(module.name).DESCRIPTOR
                services |= {each.full_name for each in descriptor.services_by_name.values()}
    assert services == set(CALLERS)


def test_nobody_may_call_a_method_that_is_not_in_the_table():
    assert not may_call("orchestrator", "specmesh.v2.Other/Call")

"""A gateway says for whom it calls, and nobody else may."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.serving.identity.conftest import (
    GENERATION,
    Dial,
    Serve,
    Service,
    flags,
    refusal,
)

from specmesh.serving.identity.on_behalf import CALLER, MAX_CALLER_BYTES, identity_behind

NOT_A_GATEWAY = (grpc.StatusCode.PERMISSION_DENIED, "NOT_A_GATEWAY")
INVALID_FIELD = (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
GATEWAY = "spiffe://test.internal/specmesh/gateway"


def list_models(channel: grpc.aio.Channel, *callers: str | bytes, token: str | None = None) -> Any:
    metadata = [(CALLER, each.encode() if isinstance(each, str) else each) for each in callers]
    if token is not None:
        metadata.append(("authorization", f"Bearer {token}"))
    return channel.unary_unary(f"{GENERATION}ListModels")(b"", metadata=metadata, timeout=10)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """A file of alice's token and of a gateway's."""
    listed = [
        {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), **more}
        for name, more in (("alice", {}), ("door", {"role": "gateway"}))
    ]
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps(listed))
    return path


async def test_a_call_of_a_gateway_is_that_of_the_caller_it_names(
    certs: Path, serve: Serve, dial: Dial, service: Service
):
    channel = dial(await serve(**flags(certs, "orchestrator")), certs, "gateway")
    for caller in ("token:alice", "jwt:https://issuer|Zoë"):
        await list_models(channel, caller)
    await list_models(channel)
    assert service.callers == [
        f"{GATEWAY}|token:alice",
        f"{GATEWAY}|jwt:https://issuer|Zoë",
        GATEWAY,
    ]


async def test_a_client_may_not_say_that_it_calls_for_another(
    certs: Path, serve: Serve, dial: Dial, service: Service
):
    port = await serve(**flags(certs, "orchestrator"))
    assert await refusal(list_models(dial(port, certs, "client"), "token:bob")) == NOT_A_GATEWAY
    assert service.callers == []


async def test_a_token_tells_a_gateway_where_certificates_do_not(
    certs: Path, tokens: Path, serve: Serve, dial: Dial, service: Service
):
    port = await serve(**flags(certs, "orchestrator"), tokens=tokens, client_certificates=False)
    channel = dial(port, certs, None)
    await list_models(channel, "token:bob", token="door")
    assert await refusal(list_models(channel, "token:bob", token="alice")) == NOT_A_GATEWAY
    assert service.callers == ["token:door|token:bob"]


async def test_the_gateways_certificate_counts_whatever_its_token(
    certs: Path, tokens: Path, serve: Serve, dial: Dial, service: Service
):
    port = await serve(**flags(certs, "orchestrator"), tokens=tokens)
    await list_models(dial(port, certs, "gateway"), "token:bob", token="alice")
    assert service.callers == ["token:alice|token:bob"]


@pytest.mark.parametrize("flags", [{}, {"host": "0.0.0.0", "plaintext_beyond_loopback": True}])
async def test_where_everybody_is_trusted_anybody_may_be_a_gateway(
    flags: dict[str, Any], serve: Serve, service: Service
):
    port = await serve(**flags)
    async with grpc.aio.insecure_channel(f"localhost:{port}") as channel:
        await list_models(channel, "token:alice")
    assert service.callers == ["token:alice"]


async def test_over_tls_nobody_is_believed_unasked(
    certs: Path, serve: Serve, dial: Dial, service: Service
):
    open_to_all = flags(certs, "orchestrator") | {"tls_ca": None}
    port = await serve(**open_to_all)
    assert await refusal(list_models(dial(port, certs, None), "token:alice")) == NOT_A_GATEWAY
    assert service.callers == []


@pytest.mark.parametrize(
    "callers", [("",), (b"\xff",), ("a" * (MAX_CALLER_BYTES + 1),), ("alice", "bob")]
)
async def test_a_name_that_is_none_is_refused(
    callers: tuple[str, ...], certs: Path, serve: Serve, dial: Dial, service: Service
):
    channel = dial(await serve(**flags(certs, "orchestrator")), certs, "gateway")
    assert await refusal(list_models(channel, *callers)) == INVALID_FIELD
    await list_models(channel, "a" * MAX_CALLER_BYTES)
    assert len(service.callers) == 1


def test_no_gateway_has_an_identity_that_another_ones_caller_could_have():
    behind = identity_behind("jwt:https://issuer|door", "jwt:https://issuer|auth0|123")
    assert behind == "jwt:https://issuer%7Cdoor|jwt:https://issuer|auth0|123"
    assert identity_behind("jwt:https://issuer", "door|x") != identity_behind(
        "jwt:https://issuer|door", "x"
    )
    assert identity_behind("jwt:a|b", "x") != identity_behind("jwt:a%7Cb", "x")

"""Bearer tokens: listed ones, and JSON Web Tokens of an issuer."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.serving.identity.conftest import (
    Dial,
    Serve,
    Service,
    Settings,
    flags,
    list_models,
    refusal,
)

from specmesh.serving.errors import UnauthenticatedStatus
from specmesh.serving.identity.bearer import Bearer
from specmesh.serving.identity.jwts import LEEWAY_SECONDS, MAX_SUBJECT_CHARS, JsonWebTokens
from specmesh.serving.identity.keys import KeyFile
from specmesh.serving.identity.tokens import StaticTokens
from specmesh.serving.identity.watched import UnusableFile

ISSUER = "https://issuer.test"
AUDIENCE = "specmesh"
UNAUTHENTICATED = (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")
KEYS: dict[str, tuple[PrivateKeyTypes, Any]] = {
    "ES256": (ec.generate_private_key(ec.SECP256R1()), jwt.algorithms.ECAlgorithm),
    "RS256": (rsa.generate_private_key(65537, 2048), jwt.algorithms.RSAAlgorithm),
    "EdDSA": (Ed25519PrivateKey.generate(), jwt.algorithms.OKPAlgorithm),
}


def jwk(algorithm: str, **fields: str) -> dict[str, str]:
    key, kind = KEYS[algorithm]
    public = json.loads(kind.to_jwk(key.public_key()))
    return public | {"kid": algorithm, "alg": algorithm} | fields


def write_jwks(path: Path, *keys: dict[str, str]) -> Path:
    path.write_text(json.dumps({"keys": keys}))
    return path


def signed(algorithm: str = "ES256", header: dict[str, str] | None = None, **changes: Any) -> str:
    """A token that is valid but for ``changes``; None leaves a claim out."""
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": time.time() + 60} | changes
    claims = {name: value for name, value in claims.items() if value is not None}
    headers = {"kid": algorithm} if header is None else header
    return jwt.encode(claims, KEYS[algorithm][0], algorithm, headers)


@pytest.fixture
def jwks(tmp_path: Path) -> Path:
    return write_jwks(tmp_path / "jwks.json", *map(jwk, KEYS))


@pytest.fixture
def jwts(jwks: Path) -> JsonWebTokens:
    return JsonWebTokens(KeyFile(jwks), ISSUER, AUDIENCE)


def write_tokens(path: Path, **tokens: str) -> Path:
    listed = [
        {"name": name, "sha256": hashlib.sha256(token.encode()).hexdigest()}
        for name, token in tokens.items()
    ]
    path.write_text(json.dumps(listed))
    return path


@pytest.mark.parametrize("algorithm", KEYS)
async def test_a_token_tells_issuer_and_subject(algorithm: str, jwts: JsonWebTokens):
    assert await jwts.identify(signed(algorithm)) == f"jwt:{ISSUER}|alice"


@pytest.mark.parametrize("algorithm", ["RS384", "RS512", "PS256", "PS384", "PS512"])
async def test_a_key_that_names_no_algorithm_verifies_all_of_its_type(
    algorithm: str, jwks: Path, jwts: JsonWebTokens
):
    claims = jwt.decode(signed(), options={"verify_signature": False})
    token = jwt.encode(claims, KEYS["RS256"][0], algorithm, {"kid": "RS256"})
    with pytest.raises(UnauthenticatedStatus, match="algorithm"):
        await jwts.identify(token)
    unnamed = {name: value for name, value in jwk("RS256").items() if name != "alg"}
    write_jwks(jwks, unnamed)
    for each in (token, signed("RS256")):
        assert await jwts.identify(each) == f"jwt:{ISSUER}|alice"


async def test_one_key_needs_no_id(tmp_path: Path):
    key = jwk("ES256")
    del key["kid"]
    jwts = JsonWebTokens(KeyFile(write_jwks(tmp_path / "one.json", key)), ISSUER, AUDIENCE)
    assert await jwts.identify(signed(header={})) == f"jwt:{ISSUER}|alice"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"iss": "https://other.test"}, "another issuer"),
        ({"aud": "other"}, "another audience"),
        ({"exp": time.time() - LEEWAY_SECONDS - 1}, "expired"),
        ({"nbf": time.time() + 86_400}, "not valid yet"),  # collected long before it runs
        ({"exp": None}, "no claim 'exp'"),
        ({"sub": None}, "no claim 'sub'"),
        ({"iss": None}, "no claim 'iss'"),
        ({"aud": None}, "no claim 'aud'"),
        ({"exp": "soon"}, "not a JSON Web Token"),
        ({"sub": 7}, "not a JSON Web Token"),
        ({"sub": "a" * (MAX_SUBJECT_CHARS + 1)}, "more than 512 characters"),
        ({"sub": "\U0001f642" * MAX_SUBJECT_CHARS}, "more than 2048 bytes"),
        ({"sub": "\ud83d"}, "not Unicode text"),
        ({"header": {"kid": "unknown"}}, "unknown key"),
        ({"header": {}}, "unknown key"),
        ({"header": {"kid": "RS256"}}, "algorithm"),
    ],
)
async def test_a_token_with_a_fault_is_refused_with_its_name(
    changes: dict[str, Any], fault: str, jwts: JsonWebTokens
):
    with pytest.raises(UnauthenticatedStatus, match=fault):
        await jwts.identify(signed(**changes))


async def test_clocks_may_differ_a_little(jwts: JsonWebTokens):
    assert await jwts.identify(signed(exp=time.time() - LEEWAY_SECONDS / 2, nbf=time.time() + 10))


async def test_a_signature_of_another_key_is_refused(jwts: JsonWebTokens):
    other = ec.generate_private_key(ec.SECP256R1())
    claims = jwt.decode(signed(), options={"verify_signature": False})
    with pytest.raises(UnauthenticatedStatus, match="signature"):
        await jwts.identify(jwt.encode(claims, other, "ES256", {"kid": "ES256"}))


async def test_the_public_key_does_not_pass_for_a_secret(jwts: JsonWebTokens):
    claims = jwt.decode(signed(), options={"verify_signature": False})
    secret = jwk("ES256")["x"] * 2
    for forged in (
        jwt.encode(claims, secret, "HS256", {"kid": "ES256"}),
        jwt.encode(claims, None, "none", {"kid": "ES256"}),
    ):
        with pytest.raises(UnauthenticatedStatus, match="algorithm"):
            await jwts.identify(forged)


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "...", "e30.e30.e30"])
async def test_what_is_no_token_is_refused(token: str, jwts: JsonWebTokens):
    with pytest.raises(UnauthenticatedStatus):
        await jwts.identify(token)


async def test_a_key_for_encryption_signs_no_token(tmp_path: Path):
    path = write_jwks(tmp_path / "jwks.json", jwk("ES256", use="enc"), jwk("EdDSA", use="sig"))
    jwts = JsonWebTokens(KeyFile(path), ISSUER, AUDIENCE)
    await jwts.identify(signed("EdDSA"))
    with pytest.raises(UnauthenticatedStatus, match="unknown key"):
        await jwts.identify(signed("ES256"))


async def test_new_keys_are_taken_up_and_old_ones_let_go(jwks: Path, jwts: JsonWebTokens):
    write_jwks(jwks, jwk("ES256"))
    assert await jwts.identify(signed("ES256"))
    with pytest.raises(UnauthenticatedStatus):
        await jwts.identify(signed("RS256"))
    write_jwks(jwks, jwk("RS256", kid="RS256"), jwk("EdDSA"))
    assert await jwts.identify(signed("RS256"))
    with pytest.raises(UnauthenticatedStatus):
        await jwts.identify(signed("ES256"))


@pytest.mark.parametrize(
    "text",
    [
        *("", "7", "[]", "{}", '{"keys": []}', '{"keys": [7]}', '{"keys": [{"kty": "RSA"}]}'),
        '{"keys": [{"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "alg": "HS256"}]}',
    ],
)
async def test_a_file_that_holds_no_asymmetric_keys_is_refused(text: str, tmp_path: Path):
    path = tmp_path / "jwks.json"
    path.write_text(text)
    with pytest.raises(UnusableFile, match=r"jwks\.json"):
        await KeyFile(path).open()


async def test_two_keys_of_one_id_are_refused(tmp_path: Path):
    path = write_jwks(tmp_path / "jwks.json", jwk("ES256", kid="a"), jwk("EdDSA", kid="a"))
    with pytest.raises(UnusableFile, match="same kid"):
        await KeyFile(path).open()


@pytest.mark.parametrize(
    "text",
    [
        *(json.dumps({"keys": [jwk("ES256") | {"kid": kid}]}) for kid in (["a"], {"a": 1}, 7)),
        *(json.dumps({"keys": [jwk("ES256") | {"use": use}]}) for use in (["sig"], {})),
        '{"keys": [{"kty": "oct", "alg": "HS256"}]}',
        "[" * 100_000,
    ],
)
async def test_keys_that_cannot_be_read_leave_the_former_ones(
    text: str, tmp_path: Path, jwts: JsonWebTokens, caplog: pytest.LogCaptureFixture
):
    assert await jwts.identify(signed())
    path = tmp_path / "jwks.json"
    path.write_text(text)
    assert await jwts.identify(signed())
    assert caplog.messages == ["changed file not usable"]
    with pytest.raises(UnusableFile, match=f"--jwks {path} is not a usable JSON Web Key Set"):
        await KeyFile(path).open()


def test_listed_tokens_are_known_by_name_until_they_are_taken_away(tmp_path: Path):
    tokens = StaticTokens(write_tokens(tmp_path / "tokens.json", alice="a", bob="b"))

    def known(*shown: str) -> list[str | None]:
        found = [tokens.identify(token) for token in shown]
        return [each and each.identity for each in found]

    assert known("a", "b", "c") == ["token:alice", "token:bob", None]
    write_tokens(tmp_path / "tokens.json", alice="a2", carol="c")
    assert known("a", "a2", "c") == [None, "token:alice", "token:carol"]


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[7]", '[{"name": "a"}]', '[{"name": "a", "sha256": "secret"}]'),
        json.dumps([{"name": "", "sha256": "0" * 64}]),
        json.dumps([{"name": "door|token:alice", "sha256": "0" * 64}]),
        json.dumps([{"name": "a", "sha256": "0" * 64, "token": "x"}]),
        json.dumps([{"name": "a", "sha256": "0" * 64, "role": "orchestrator"}]),
    ],
)
def test_a_list_of_another_form_is_refused_and_not_repeated(text: str, tmp_path: Path):
    path = tmp_path / "tokens.json"
    path.write_text(text)
    with pytest.raises(UnusableFile, match=r"tokens\.json") as raised:
        StaticTokens(path).load()
    assert "secret" not in str(raised.value)


def test_a_token_with_two_names_is_refused_by_them(tmp_path: Path):
    path = write_tokens(tmp_path / "tokens.json", alice="a", bob="b", carol="a")
    with pytest.raises(UnusableFile, match="alice and carol have the same sha256"):
        StaticTokens(path).load()


async def test_over_tls_a_token_tells_who_calls_without_a_client_certificate(
    certs: Path, jwks: Path, serve: Serve, dial: Dial, service: Service
):
    port = await serve(
        **flags(certs, "orchestrator"),
        client_certificates=False,
        jwks=jwks,
        jwt_issuer=ISSUER,
        jwt_audience=AUDIENCE,
        tokens=write_tokens(certs / "tokens.json", bob="b"),
    )
    channel = dial(port, certs, None)
    await list_models(channel, signed())
    await list_models(channel, "b")
    assert service.callers == [f"jwt:{ISSUER}|alice", "token:bob"]
    for wrong in (None, "", "c", signed(iss="https://other.test"), signed(exp=1)):
        assert await refusal(list_models(channel, wrong)) == UNAUTHENTICATED
    assert len(service.callers) == 2


async def test_with_both_asked_for_the_token_tells_who_calls_and_the_certificate_its_role(
    certs: Path, serve: Serve, dial: Dial, service: Service
):
    tokens = write_tokens(certs / "tokens.json", bob="b")
    port = await serve(**flags(certs, "orchestrator"), tokens=tokens)
    await list_models(dial(port, certs, "gateway"), "b")
    assert service.callers == ["token:bob"]
    assert await refusal(list_models(dial(port, certs, "gateway"))) == UNAUTHENTICATED
    wrong = list_models(dial(port, certs, "drafter"), "b")
    assert await refusal(wrong) == (grpc.StatusCode.PERMISSION_DENIED, "WRONG_ROLE")


async def test_nothing_else_passes_for_a_token(certs: Path, serve: Serve, service: Service):
    port = await serve(tokens=write_tokens(certs / "tokens.json", bob="b"))
    async with grpc.aio.insecure_channel(f"localhost:{port}") as channel:
        call = channel.unary_unary("/specmesh.v1.GenerationService/ListModels")
        for metadata in (
            (("authorization", "b"),),
            (("authorization", "Basic b"),),
            (("authorization", "Bearer b"), ("authorization", "Bearer b")),
            (("authorization", "Bearer "),),
        ):
            assert await refusal(call(b"", metadata=metadata)) == UNAUTHENTICATED
        await call(b"", metadata=(("authorization", "bearer b"),))
    assert service.callers == ["token:bob"]


@pytest.mark.parametrize("token", ["é", "\udcff"])
async def test_characters_that_no_token_has_are_refused(
    token: str, jwts: JsonWebTokens, tmp_path: Path
):
    bearer = Bearer(StaticTokens(write_tokens(tmp_path / "tokens.json", bob="b")), jwts)
    with pytest.raises(UnauthenticatedStatus):
        await bearer.identify(f"Bearer {token}")


@pytest.mark.parametrize("given", [{"jwks": "file"}, {"jwt_issuer": "x", "jwt_audience": "y"}])
def test_what_makes_a_token_valid_is_given_as_a_whole(given: dict[str, str]):
    with pytest.raises(ValueError, match="--jwks or --jwks-url, --jwt-issuer and --jwt-audience"):
        Settings(**given)


@pytest.mark.parametrize(
    ("given", "lacks"),
    [
        ({"tls_ca": "ca"}, "--tokens, --jwks or --jwks-url"),
        ({"tokens": "tokens"}, "--tls-ca"),
    ],
)
def test_who_asks_no_client_for_a_certificate_asks_for_tokens(given: dict[str, str], lacks: str):
    with pytest.raises(ValueError, match=f"--no-client-certificates needs {lacks}"):
        Settings(client_certificates=False, tls_cert="cert", tls_key="key", **given)


async def test_without_a_token_a_call_is_refused_before_its_request_has_arrived(
    certs: Path, serve: Serve, service: Service
):
    async def half_sent():
        await asyncio.Event().wait()
        yield b""

    port = await serve(tokens=write_tokens(certs / "tokens.json", bob="b"))
    async with grpc.aio.insecure_channel(f"localhost:{port}") as channel:
        call = channel.stream_unary("/specmesh.v1.GenerationService/ListModels")
        assert await refusal(call(half_sent(), timeout=10)) == UNAUTHENTICATED
    assert service.callers == []


async def test_reflection_needs_a_token_where_calls_do_and_health_needs_none(
    certs: Path, serve: Serve
):
    port = await serve(tokens=write_tokens(certs / "tokens.json", bob="b"))
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    async with grpc.aio.insecure_channel(f"localhost:{port}") as channel:
        reflect = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        unread = reflect(timeout=10)
        assert await refusal(unread.read()) == UNAUTHENTICATED  # before it has asked anything
        call = reflect(timeout=10, metadata=(("authorization", "Bearer b"),))
        await call.write(request)
        assert (await call.read()).HasField("list_services_response")
        call.cancel()
        health = health_pb2_grpc.HealthStub(channel)
        await health.Check(health_pb2.HealthCheckRequest(), timeout=10)

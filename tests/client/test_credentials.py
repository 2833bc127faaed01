"""Who the client is and whom it trusts: real TLS, certificates that change, tokens."""

import asyncio
import datetime
import ipaddress
import traceback
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.client.conftest import TOKENS, FakeOrchestrator, chunks, finished, started

from specmesh.client import (
    AsyncClient,
    Client,
    Hooks,
    InvalidRequest,
    Tls,
    TokenFile,
    Unauthenticated,
    Unavailable,
)
from specmesh.client.connections.credentials import is_loopback
from specmesh.client.testing import FakeMesh
from specmesh.v1.generation_pb2_grpc import add_GenerationServiceServicer_to_server


class Authority:
    """Signs certificates."""

    def __init__(self):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._sign("authority", self.key, issuer=None)
        self.pem = self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, name):
        """A private key and a certificate of ``name``, at 127.0.0.1 too, as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(name, key, issuer=self.certificate.subject)
        return (
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
            certificate.public_bytes(serialization.Encoding.PEM),
        )

    def server(self, *, clients=None):
        """Credentials of a server, which asks for certificates of the authority ``clients``."""
        return grpc.ssl_server_credentials(
            [self.issue("mesh.test")], clients and clients.pem, clients is not None
        )

    def _sign(self, name, key, issuer):
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        names = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer or subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), True)
            .add_extension(x509.SubjectAlternativeName(names), False)
            .sign(self.key, hashes.SHA256())
        )


@pytest.fixture(scope="module")
def authority():
    return Authority()


def test_a_server_is_trusted_by_the_root_certificate_given(authority, tmp_path):
    roots = tmp_path / "roots.pem"
    roots.write_bytes(authority.pem)
    with FakeMesh(authority.server()) as mesh:
        for given in (roots, str(roots), authority.pem):
            mesh.answer("well met")
            with Client(mesh.address, tls=Tls(root_certificates=given)) as client:
                assert client.complete("hello").text == "well met"


def test_a_server_of_another_authority_is_not(authority):
    with (
        FakeMesh(Authority().server()) as mesh,
        Client(mesh.address, tls=Tls(root_certificates=authority.pem), max_retries=0) as client,
        pytest.raises(Unavailable),
    ):
        client.complete("hello")
    assert mesh.requests == []


def test_the_name_in_a_certificate_may_be_another_one_than_the_targets(authority):
    with FakeMesh(authority.server()) as mesh:
        address = mesh.address.replace("127.0.0.1", "localhost")
        mesh.answer("well met")
        tls = Tls(root_certificates=authority.pem)
        with Client(address, tls=tls, max_retries=0) as client, pytest.raises(Unavailable):
            client.complete("hello")
        tls = Tls(root_certificates=authority.pem, server_name="mesh.test")
        with Client(address, tls=tls) as client:
            assert client.complete("hello").text == "well met"


async def test_changed_certificates_are_taken_up_and_no_stream_is_lost(authority, tmp_path):
    chain, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def write(name):
        pems = authority.issue(name)
        key.write_bytes(pems[0])
        chain.write_bytes(pems[1])

    go_on, identities = asyncio.Event(), []

    async def slowly(context):
        identities.append(context.auth_context()["x509_common_name"])
        yield started()
        for event in chunks(0, len(TOKENS)):
            yield event
            await go_on.wait()
        yield finished()

    async def at_once(context):
        identities.append(context.auth_context()["x509_common_name"])
        yield started()
        yield finished()

    fake = FakeOrchestrator([slowly, at_once])
    server = grpc.aio.server()
    add_GenerationServiceServicer_to_server(fake, server)
    port = server.add_secure_port("127.0.0.1:0", authority.server(clients=authority))
    await server.start()
    write("before")
    tls = Tls(root_certificates=authority.pem, certificate_chain=chain, private_key=key)
    async with AsyncClient(f"127.0.0.1:{port}", tls=tls) as client, asyncio.timeout(20):
        stream = client.generate("slow")
        reading = aiter(stream)
        await anext(reading)
        write("after, it is another name")
        await client.generate("quick")
        go_on.set()
        async for _ in reading:
            pass
    await server.stop(None)
    assert (stream.token_ids, stream.result.num_resumes) == (TOKENS, 0)
    assert identities == [[b"before"], [b"after, it is another name"]]


def test_a_certificate_needs_its_key():
    with pytest.raises(ValueError, match="together"):
        Tls(certificate_chain=b"")


@pytest.mark.parametrize("kind", [str, Path])
@pytest.mark.parametrize("field", ["root_certificates", "certificate_chain", "private_key"])
def test_pem_text_that_is_no_bytes_is_refused_and_stays_secret(field, kind):
    pems = {"certificate_chain": b"", "private_key": b""}
    with pytest.raises(ValueError, match=f"^{field}: pass PEM text as bytes") as caught:
        Tls(**{**pems, field: kind("-----BEGIN PRIVATE KEY-----\nc2VjcmV0")})
    assert "c2VjcmV0" not in str(caught.value)


def test_tokens_are_sent_as_bearer_from_wherever_they_come(tmp_path):
    async def asked_for():
        return "asynchronous"

    file = tmp_path / "token"
    file.write_text("from a file\n")
    sources = {
        "static": "static",
        "a function": lambda: "a function",
        "asynchronous": asked_for,
        "from a file": TokenFile(file),
    }
    with FakeMesh() as mesh:
        for expected, source in sources.items():
            with Client(mesh.address, token=source) as client:
                client.list_models()
            assert mesh.metadata[-1]["authorization"] == f"Bearer {expected}"


def test_a_token_is_asked_for_before_every_call_and_a_file_read_again_when_it_changes(tmp_path):
    file = tmp_path / "token"
    file.write_text("first")
    with FakeMesh() as mesh, Client(mesh.address, token=TokenFile(file)) as client:
        client.list_models()
        file.write_text("the second")
        client.list_models()
        mesh.answer("a", "b", breaks_after=1)
        file.write_text("the third one")
        client.complete("hello")
    sent = [each["authorization"] for each in mesh.metadata]
    assert sent == [f"Bearer {each}" for each in ("first", "the second", *["the third one"] * 2)]


@pytest.mark.parametrize("token", ["", "two\nlines", "schlüssel"])
def test_what_no_header_can_hold_is_no_token(token):
    with Client("127.0.0.1:1", token=token) as client, pytest.raises(ValueError, match="ASCII"):
        client.list_models()


def away():
    raise LookupError("the identity provider is away")


@pytest.mark.parametrize("source", ["token", "metadata"])
def test_a_source_that_fails_is_named_with_what_it_raised(source):
    expected = f"the function that gives the {source} failed: .*provider is away"
    with Client("127.0.0.1:1", **{source: away}) as client:
        for call in (client.list_models, lambda: client.complete("hello")):
            with pytest.raises(Unauthenticated, match=expected) as caught:
                call()
            assert isinstance(caught.value.__cause__, LookupError)


def test_an_error_about_a_token_that_is_not_utf8_does_not_repeat_it(tmp_path):
    file = tmp_path / "token"
    file.write_bytes("secret".encode("utf-16"))
    sources = {f"{file} is not UTF-8": TokenFile(file), "UnicodeDecodeError": file.read_text}
    for said, source in sources.items():
        with Client("127.0.0.1:1", token=source) as client:
            with pytest.raises(Unauthenticated, match=said) as caught:
                client.list_models()
            shown = "".join(traceback.format_exception(caught.value))
            assert "s\\x00e\\x00c" not in shown
    with pytest.raises(ValueError, match="is not UTF-8") as caught:
        TokenFile(file)()
    assert caught.value.__context__ is None


async def empty():
    return ""


@pytest.mark.parametrize(
    "fails", [away, lambda: "", lambda: None, lambda: "two\nlines", lambda: b"bytes", empty]
)
def test_a_source_that_fails_once_costs_a_batch_one_answer(fails):
    sources = iter([lambda: "first", fails, lambda: "third"])

    def token():
        return next(sources)()

    with FakeMesh() as mesh:
        mesh.answer("a")
        mesh.answer("b")
        with Client(mesh.address, token=token) as client:
            answers = client.generate_many(["x", "y", "z"], concurrency=1)
    assert [answers[0].text, type(answers[1]), answers[2].text] == ["a", Unauthenticated, "b"]


def test_while_a_file_is_empty_its_former_token_stays_in_use(tmp_path):
    file = tmp_path / "token"
    file.write_text("first")
    token = TokenFile(file)
    assert token() == "first"
    file.write_text("\n")
    assert token() == "first"
    file.write_text("second")
    assert token() == "second"


def test_a_token_goes_in_clear_text_to_this_machine_alone():
    for target in ("127.0.0.1:1", "[::1]:1", "localhost:1", "dns:///localhost:1", "unix:/x"):
        AsyncClient(target, token="secret")
    for target in ("10.0.0.1:1", "mesh.test:1", "dns:///mesh.test:1", "localhost.test:1"):
        with pytest.raises(ValueError, match="send_token_in_clear_text"):
            AsyncClient("127.0.0.1:1", target, token="secret")
        AsyncClient(target, token="secret", tls=Tls())
        AsyncClient(target, token="secret", send_token_in_clear_text=True)


def test_what_is_for_this_machine_goes_through_no_proxy(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with FakeMesh() as mesh, Client(mesh.address, token="secret", max_retries=0) as client:
        mesh.answer("well met")
        assert client.complete("hello").text == "well met"


def test_loopback_is_told_by_address_and_not_by_likeness():
    assert not is_loopback("127.0.0.1.evil.test:1")
    assert not is_loopback("localhostess:1")
    assert not is_loopback("ipv4:127.0.0.1:1,10.0.0.1:1")
    assert not is_loopback("dns://10.0.0.1/localhost:1")
    assert is_loopback("127.8.8.8:1")


@pytest.mark.parametrize(
    "target",
    [
        *("ipv4:127.0.0.1:1", "ipv4:127.0.0.1:1,127.0.0.2:1", "ipv6:[::1]:1"),
        *("dns:localhost:1", "dns:127.0.0.1:1", "dns:///localhost:1", "unix-abstract:mesh"),
    ],
)
def test_loopback_is_told_under_every_scheme_of_grpc(target):
    assert is_loopback(target)


def test_metadata_may_be_asked_for_before_each_call():
    teams = iter(["search", "ads"])
    with FakeMesh() as mesh:
        mesh.answer("a")
        with Client(mesh.address, metadata=lambda: [("x-team", next(teams))]) as client:
            client.complete("b")
            client.list_models()
    assert [each["x-team"] for each in mesh.metadata] == ["search", "ads"]


def test_metadata_goes_with_every_call_and_options_replace_the_clients_own():
    with (
        FakeMesh() as mesh,
        Client(
            mesh.address,
            metadata=[("x-team", "search"), ("x-raw-bin", b"\xff")],
            channel_options=[("grpc.primary_user_agent", "our-service")],
        ) as client,
    ):
        mesh.answer("a")
        client.complete("hello")
        client.tokenize("hello")
    assert [each["x-team"] for each in mesh.metadata] == ["search", "search"]
    assert mesh.metadata[0]["x-raw-bin"] == b"\xff"
    assert mesh.metadata[0]["user-agent"].startswith("our-service ")


@pytest.mark.parametrize("kind", [iter, dict])
def test_options_of_channels_may_be_pairs_of_any_kind(kind):
    options = kind([("grpc.primary_user_agent", "our-service")])
    with FakeMesh() as mesh, Client(mesh.address, channel_options=options) as client:
        client.list_models()
    assert mesh.metadata[0]["user-agent"].startswith("our-service ")


@pytest.mark.parametrize(
    ("metadata", "error", "message"),
    [
        ({"x-team": "search"}, TypeError, "metadata: expected a sequence of .*, got dict"),
        ("ab", TypeError, "metadata: expected a sequence of .*, got str"),
        (["ab"], TypeError, r"metadata\[0\]: expected \(key, value\)"),
        ([("a", "b"), ("c",)], TypeError, r"metadata\[1\]: expected \(key, value\)"),
        ([(b"x-team", "a")], TypeError, r"metadata\[0\]: .*, the key a string"),
        ([("X-Team", "a")], ValueError, "the key 'X-Team' must have only lower-case letters"),
        ([("x team", "a")], ValueError, "the key 'x team'"),
        ([("", "a")], ValueError, "the key ''"),
        ([("x-team", 5)], TypeError, "'x-team' takes a string, not int"),
        ([("x-team", None)], TypeError, "'x-team' takes a string, not NoneType"),
        ([("x-team", "sé")], ValueError, "'x-team' takes printable ASCII"),
        ([("x-team", "a\n")], ValueError, "'x-team' takes printable ASCII"),
        ([("x-team", b"\xff")], ValueError, "'x-team' takes printable ASCII"),
        ([("x-team-bin", "a")], TypeError, "'x-team-bin' takes bytes, not str"),
    ],
)
def test_metadata_that_no_call_can_carry_are_refused_under_their_key(metadata, error, message):
    retries = []
    hooks = Hooks(on_retry=retries.append)
    for source in (metadata, lambda: metadata):
        with Client("127.0.0.1:1", metadata=source, hooks=hooks) as client:
            for call in (client.list_models, lambda: client.complete("hello")):
                with pytest.raises(error, match=message):
                    call()
    assert retries == []


@pytest.mark.parametrize("metadata", [[("a", "b" * 16_384)], [("a", "b")] * 2000])
def test_metadata_too_large_for_grpc_are_refused_with_a_reason(metadata):
    with (
        Client("127.0.0.1:1", metadata=metadata) as client,
        pytest.raises(InvalidRequest) as raised,
    ):
        client.list_models()
    assert raised.value.reason == "METADATA_TOO_LARGE"


def test_interceptors_see_the_calls():
    seen = []

    class Watching(grpc.aio.UnaryStreamClientInterceptor):
        async def intercept_unary_stream(self, continuation, client_call_details, request):
            seen.append(client_call_details.method)
            return await continuation(client_call_details, request)

    with FakeMesh() as mesh, Client(mesh.address, interceptors=[Watching()]) as client:
        mesh.answer("a ", "b", breaks_after=1)
        assert client.complete("hello").text == "a b"
    names = [str(each, "ascii") if isinstance(each, bytes) else each for each in seen]
    assert [each.rpartition("/")[2] for each in names] == ["Generate", "Resume"]

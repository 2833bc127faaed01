"""Keys that an issuer publishes at a URL: fetched off the loop, renewed, kept while it fails."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
import grpc.aio
import pytest
from pydantic import ValidationError
from tests.serving.identity.conftest import Serve, Service, Settings, list_models, refusal
from tests.serving.identity.test_tokens import AUDIENCE, ISSUER, UNAUTHENTICATED, jwk, signed

from specmesh.serving.errors import UnauthenticatedStatus
from specmesh.serving.identity.jwts import JsonWebTokens
from specmesh.serving.identity.keys import KeyUrl
from specmesh.serving.identity.watched import UnusableFile
from specmesh.serving.startup import CannotStart

NEVER = 3600.0


class Issuer:
    """Publishes keys over HTTP."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.body = b""
        self.status = 200
        self.moved_to = ""
        self.num_asked = 0
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.drips_after = b""
        """The beginning of a response that goes on byte by byte, without an end."""
        self._closed = threading.Event()
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.num_asked += 1
                issuer.may_answer.wait(30)
                if issuer.drips_after:
                    self.wfile.write(issuer.drips_after)
                    while not issuer._closed.wait(0.01):
                        self.wfile.write(b" ")
                    return
                self.send_response(issuer.status)
                self.send_header("location", issuer.moved_to)
                self.send_header("content-length", str(len(issuer.body)))
                self.end_headers()
                self.wfile.write(issuer.body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign] # who gave up
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._server.server_port}/keys"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def publish(self, *keys: dict[str, str]) -> None:
        self.body = json.dumps({"keys": keys}).encode()

    def close(self) -> None:
        self._closed.set()
        self.may_answer.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    """One that has published ES256."""
    issuer = Issuer()
    issuer.publish(jwk("ES256"))
    yield issuer
    issuer.close()


Open = Callable[..., Awaitable[JsonWebTokens]]


@pytest.fixture
async def opened(issuer: Issuer) -> AsyncIterator[Open]:
    """Checks tokens with the issuer's keys, which are asked for as often as is said."""
    async with AsyncExitStack() as stack:

        async def open_(*, refresh_s: float = NEVER, retry_s: float = 0.0, fetch_s: float = 5.0):
            times = {"refresh_s": refresh_s, "retry_s": retry_s, "fetch_s": fetch_s}
            jwts = JsonWebTokens(KeyUrl(issuer.url, **times), ISSUER, AUDIENCE)
            await jwts.open()
            stack.push_async_callback(jwts.close)
            return jwts

        yield open_


async def is_known(jwts: JsonWebTokens, algorithm: str) -> bool:
    try:
        return bool(await jwts.identify(signed(algorithm)))
    except UnauthenticatedStatus:
        return False


async def test_a_key_that_is_new_is_fetched_when_it_is_first_used(opened: Open, issuer: Issuer):
    jwts = await opened()
    assert await is_known(jwts, "ES256")
    assert issuer.num_asked == 1
    issuer.publish(jwk("ES256"), jwk("EdDSA"))
    assert await is_known(jwts, "EdDSA")
    assert await is_known(jwts, "ES256")
    assert issuer.num_asked == 2


async def test_tokens_that_name_invented_keys_do_not_have_the_url_asked_each_time(
    opened: Open, issuer: Issuer
):
    jwts = await opened(retry_s=NEVER)
    for _ in range(20):
        assert not await is_known(jwts, "RS256")
    assert issuer.num_asked == 1


async def test_those_who_wait_for_the_same_keys_have_the_url_asked_once(
    opened: Open, issuer: Issuer
):
    jwts = await opened()
    issuer.publish(jwk("EdDSA"))
    assert all(await asyncio.gather(*(is_known(jwts, "EdDSA") for _ in range(20))))
    assert issuer.num_asked == 2


async def test_keys_are_renewed_and_those_taken_back_are_let_go(opened: Open, issuer: Issuer):
    jwts = await opened(refresh_s=0.02, retry_s=NEVER)
    issuer.publish(jwk("EdDSA"))
    async with asyncio.timeout(10):
        while await is_known(jwts, "ES256"):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)
    assert await is_known(jwts, "EdDSA")


@pytest.mark.parametrize("body", [b"", b"nothing", b"[]", b'{"keys": []}', b'{"keys": 7}'])
@pytest.mark.parametrize("status", [200, 503])
async def test_known_keys_count_while_the_url_fails(
    status: int, body: bytes, opened: Open, issuer: Issuer, caplog: pytest.LogCaptureFixture
):
    jwts = await opened()
    issuer.status, issuer.body = status, body
    for _ in range(3):
        assert not await is_known(jwts, "RS256")  # has it asked
        assert await is_known(jwts, "ES256")
    assert issuer.num_asked == 4
    assert caplog.messages == ["keys not fetched"]
    caplog.set_level(logging.INFO)
    issuer.status = 200
    issuer.publish(jwk("RS256"))
    assert await is_known(jwts, "RS256")
    assert caplog.messages == ["keys not fetched", "keys fetched again"]


async def test_a_url_that_is_silent_holds_up_nobody_whose_key_is_known(
    opened: Open, issuer: Issuer
):
    jwts = await opened(fetch_s=0.2)
    issuer.may_answer.clear()
    loop = asyncio.get_running_loop()
    began = loop.time()
    waits = asyncio.create_task(is_known(jwts, "EdDSA"))
    await asyncio.sleep(0)
    for _ in range(10):
        assert await is_known(jwts, "ES256")
    assert not waits.done()
    assert not await waits
    assert loop.time() - began < 5
    issuer.publish(jwk("EdDSA"))
    issuer.may_answer.set()
    async with asyncio.timeout(10):
        while not await is_known(jwts, "EdDSA"):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


async def test_who_stops_waiting_does_not_end_it_for_the_others(opened: Open, issuer: Issuer):
    jwts = await opened()
    issuer.publish(jwk("EdDSA"))
    issuer.may_answer.clear()
    first, second = (asyncio.create_task(is_known(jwts, "EdDSA")) for _ in range(2))
    await asyncio.sleep(0.01)
    first.cancel()
    issuer.may_answer.set()
    assert await second


async def test_keys_of_other_kinds_are_left_out(opened: Open, issuer: Issuer):
    secret = {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "alg": "HS256", "kid": "s"}
    issuer.publish(secret, jwk("RS256", use="enc"), {"kty": "new", "kid": "n"}, jwk("ES256"))
    jwts = await opened()
    assert await is_known(jwts, "ES256")
    assert not await is_known(jwts, "RS256")


async def test_without_keys_at_first_nothing_starts(issuer: Issuer, serve: Serve):
    issuer.status = 503
    keys = KeyUrl(issuer.url)
    with pytest.raises(UnusableFile, match=rf"{issuer.url}: .*503"):
        await keys.open()
    await keys.close()
    with pytest.raises(CannotStart, match=issuer.url):
        await serve(jwks_url=issuer.url, jwt_issuer=ISSUER, jwt_audience=AUDIENCE)


async def test_a_server_lets_in_who_has_a_token_of_the_issuer(
    issuer: Issuer, serve: Serve, service: Service
):
    port = await serve(jwks_url=issuer.url, jwt_issuer=ISSUER, jwt_audience=AUDIENCE)
    async with grpc.aio.insecure_channel(f"localhost:{port}") as channel:
        await list_models(channel, signed())
        assert await refusal(list_models(channel, signed("RS256"))) == UNAUTHENTICATED
    assert service.callers == [f"jwt:{ISSUER}|alice"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"jwks_url": "http://issuer.test/keys"}, "must be https"),
        ({"jwks_url": "file:///etc/passwd"}, "not an https:// URL"),
        ({"jwks_url": "issuer.test"}, "not an https:// URL"),
        ({"jwks_url": "https://issuer.test/keys", "jwks": "file"}, "can't be combined"),
        ({"jwks_url": "https://issuer.test/keys", "jwt_issuer": ""}, "go together"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(given: dict[str, Any], said: str):
    with pytest.raises(ValueError, match=said):
        Settings(**({"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE} | given))


@pytest.mark.parametrize(
    "url",
    [
        *("https://alice:secret@issuer.test/keys", "http://alice:secret@127.0.0.1:1/keys"),
        *("https://secret@issuer.test/keys", "ftp://alice:secret@issuer.test/keys"),
        *("alice:secret@issuer.test/keys", "https://alice:secret@[/keys"),
        "https://alice:secret@issuer.test\u2100/keys",
    ],
)
def test_a_password_in_a_url_is_refused_and_not_shown(url: str):
    with pytest.raises(ValueError, match="--jwks-url") as raised:
        Settings(jwks_url=url, jwt_issuer=ISSUER, jwt_audience=AUDIENCE)
    assert isinstance(raised.value, ValidationError)
    (problem,) = raised.value.errors()
    assert "secret" not in problem["msg"]


def test_plain_http_is_for_this_machine_or_those_who_ask_for_it():
    names = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    assert Settings(jwks_url="http://[::1]:1/keys", **names).requires_tokens
    elsewhere = {"jwks_url": "http://issuer.test/keys", "plaintext_beyond_loopback": True}
    assert Settings(**elsewhere, **names).requires_tokens

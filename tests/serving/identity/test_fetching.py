"""The way by which keys come from a URL: through which proxy, over TLS, within time and size."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from tests.serving.identity.test_keys_url import Issuer, Open, is_known, issuer, opened
from tests.serving.identity.test_tokens import jwk

from specmesh.serving.fetching import MAX_BYTES
from specmesh.serving.identity.keys import KeyUrl
from specmesh.serving.identity.watched import UnusableFile

__all__ = ["issuer", "opened"]


async def test_a_proxy_is_not_asked_for_the_keys_of_this_machine(
    opened: Open, monkeypatch: pytest.MonkeyPatch
):
    proxy = Issuer()
    proxy.publish(jwk("EdDSA"))
    monkeypatch.setenv("http_proxy", proxy.url)
    jwts = await opened()
    assert await is_known(jwts, "ES256")
    assert not await is_known(jwts, "EdDSA")
    assert not proxy.num_asked
    proxy.close()


async def test_a_proxy_is_asked_for_keys_elsewhere(issuer: Issuer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("http_proxy", issuer.url)
    monkeypatch.delenv("no_proxy", raising=False)
    keys = KeyUrl("http://issuer.test/keys")
    await keys.open()
    assert await keys.find("ES256")
    await keys.close()


async def test_keys_come_over_tls_from_a_server_that_a_trusted_ca_has_signed(
    certs: Path, monkeypatch: pytest.MonkeyPatch
):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs / "gateway.pem", certs / "gateway-key.pem")
    issuer = Issuer(context)
    issuer.publish(jwk("ES256"))
    keys = KeyUrl(issuer.url)
    with pytest.raises(UnusableFile, match="CERTIFICATE_VERIFY_FAILED"):
        await keys.open()
    monkeypatch.setenv("SSL_CERT_FILE", str(certs / "ca.pem"))
    await keys.open()
    assert await keys.find("ES256")
    await keys.close()
    issuer.close()


async def test_keys_come_from_no_url_that_the_operator_did_not_choose(issuer: Issuer):
    issuer.status, issuer.moved_to = 302, f"{issuer.url}/elsewhere"
    keys = KeyUrl(issuer.url)
    with pytest.raises(UnusableFile, match="302"):
        await keys.open()
    await keys.close()
    assert issuer.num_asked == 1


@pytest.mark.parametrize("so_far", [b"HTTP/1.0 200 OK\r\nname: ", b"HTTP/1.0 200 OK\r\n\r\n"])
async def test_a_url_that_drips_holds_up_no_later_fetch(
    so_far: bytes, opened: Open, issuer: Issuer
):
    jwts = await opened(fetch_s=0.1)
    issuer.drips_after = so_far
    assert not await is_known(jwts, "EdDSA")
    issuer.drips_after = b""
    issuer.publish(jwk("EdDSA"))
    async with asyncio.timeout(10):
        while not await is_known(jwts, "EdDSA"):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


async def test_no_more_is_read_than_keys_can_have(issuer: Issuer):
    issuer.drips_after = b"HTTP/1.0 200 OK\r\n\r\n" + b" " * (MAX_BYTES + 1)
    keys = KeyUrl(issuer.url)
    with pytest.raises(UnusableFile, match=f"{issuer.url}: more than {MAX_BYTES} bytes"):
        await keys.open()
    issuer.drips_after = b""
    issuer.body = issuer.body.rjust(MAX_BYTES)
    await keys.open()
    await keys.close()

"""Pages in a browser call the gateway from the origins that its settings name, and no others."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from tests.client.conftest import whole_answer

from specmesh.gateway.settings import GatewaySettings

PAGE = "https://chat.example.com"
OTHER = "http://localhost:3000"
ASKED = {"model": "toy", "prompt": "hello"}
PREFLIGHT = {
    "origin": PAGE,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-lang",
}
ALLOWED = "access-control-allow-origin"


@pytest.fixture
async def gateway(open_gateway, orchestrator):
    return await open_gateway(orchestrator.address, cors_origins=f"{PAGE}, {OTHER}")


async def test_a_page_of_a_named_origin_may_ask_and_read_the_answer(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer] * 2
    asked = await gateway.http.options("/v1/completions", headers=PREFLIGHT)
    assert asked.status_code == 200
    assert asked.headers[ALLOWED] == PAGE
    assert "x-stainless-lang" in asked.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in asked.headers
    for stream in (False, True):
        answer = await gateway.post("/v1/completions", {**ASKED, "stream": stream}, origin=OTHER)
        assert (answer.status_code, answer.headers[ALLOWED]) == (200, OTHER)
        assert "x-request-id" in answer.headers["access-control-expose-headers"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [("/v1/completions", {"model": "toy"}, 400), ("/v1/nothing", {}, 404)],
)
async def test_a_page_can_read_why_it_was_refused(gateway, path, body, status):
    answer = await gateway.post(path, body, origin=PAGE)
    assert (answer.status_code, answer.headers[ALLOWED]) == (status, PAGE)


async def test_pages_of_other_origins_may_not(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    for origin in ("https://chat.example.com.evil.org", "null", f"{PAGE}:8443"):
        asked = await gateway.http.options(
            "/v1/completions", headers={**PREFLIGHT, "origin": origin}
        )
        assert asked.status_code == 400
        assert ALLOWED not in asked.headers
    answer = await gateway.post("/v1/completions", ASKED, origin="null")
    assert ALLOWED not in answer.headers


async def test_no_page_may_unless_an_origin_is_named(open_gateway, orchestrator):
    gateway = await open_gateway(orchestrator.address)
    asked = await gateway.http.options("/v1/completions", headers=PREFLIGHT)
    assert asked.status_code == 405
    answer = await gateway.post("/v1/completions", {"model": "toy"}, origin=PAGE)
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize(
    "origin", ["*", "null", "chat.example.com", f"{PAGE}/", "https://Chat.example.com", "ftp://a"]
)
def test_what_no_browser_sends_is_refused_at_the_start(origin):
    with pytest.raises(ValidationError, match="is not an origin"):
        GatewaySettings(cors_origins=origin)

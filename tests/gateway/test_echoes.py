"""Echoes with log-probabilities: what they cost, and what their failures leave behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.conftest import Open

from specmesh.client import AsyncClient, TextScore, TokenLogprob, TokenLogprobs
from specmesh.client.testing import FakeMesh
from specmesh.gateway import json_text
from specmesh.gateway.errors import ApiError
from specmesh.gateway.http.long_json import long_json
from specmesh.gateway.requests.completions import completion_request
from specmesh.gateway.responses import echo
from specmesh.gateway.responses.echo import echoes

TEXT = "x" * (2 * echo.PART_TOKENS + 3)


def hold(num_bytes: int) -> None:
    """Hold as much as there is."""


@pytest.fixture
def mesh() -> Iterator[FakeMesh]:
    with FakeMesh() as mesh:
        yield mesh


class Scorer(AsyncClient):
    """A client that scores nothing until it is cancelled, but fails for the prompt "bad"."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:1")
        self.running: set[str] = set()
        self.timeouts: list[float | None] = []

    async def score(self, prompt, *, timeout_s=None, **_) -> TextScore:
        self.timeouts.append(timeout_s)
        if prompt == "bad":
            raise ApiError.invalid("prompt", "bad")
        self.running.add(prompt)
        try:
            await asyncio.Event().wait()
        finally:
            self.running.discard(prompt)
        raise AssertionError


async def test_a_prompt_that_fails_cancels_the_scores_of_the_others():
    client = Scorer()
    asked = completion_request(
        {"model": "fake", "prompt": ["a", "b", "bad"], "echo": True, "logprobs": 1}
    )
    with pytest.raises(ApiError, match="bad"):
        await echoes(client, asked, hold, 7.0)
    assert not client.running
    assert client.timeouts == [7.0] * 3


async def test_a_prompt_is_told_once_for_all_its_choices(mesh):
    asked = completion_request(
        {"model": "fake", "prompt": ["ab", "c"], "echo": True, "logprobs": 1, "n": 3}
    )
    async with AsyncClient(mesh.address) as client:
        found = await echoes(client, asked, hold, 60.0)
    assert [each.text for each in found] == ["ab"] * 3 + ["c"] * 3
    assert len({id(each.logprobs) for each in found}) == 2


@pytest.mark.parametrize(
    ("told", "first"),
    [
        ([(b"\x9d", 0), (b"\xb1", 0), (b"x", 1)], r"bytes:\xe6"),
        ([(b"\xb1x", 0)], r"bytes:\xe6\x9d"),
        ([("\u6771".encode(), 0), (b"x", 1)], "token_id:7"),
        ([(b"\xe6", 0), (b"\x9d\xb1", 0), (b"x", 1)], "token_id:7"),
        ([(b"x", 1)], "\u6771"),
    ],
    ids=["a byte", "two bytes", "added", "added before a byte", "a character"],
)
async def test_the_first_token_of_a_prompt_may_be_part_of_a_character(told, first):
    later = [TokenLogprobs(TokenLogprob(8, -1.0, added), (), at) for added, at in told]

    class Told(AsyncClient):
        async def score(self, prompt, **_) -> TextScore:
            return TextScore((7, *[8] * len(later)), tuple(later), "")

    asked = {"model": "fake", "prompt": "\u6771x", "echo": True, "logprobs": 0}
    (found,) = await echoes(Told("127.0.0.1:1"), completion_request(asked), hold, 60.0)
    assert found.logprobs["tokens"][0] == first


@pytest.mark.parametrize(("n", "status"), [(1, 200), (2, 413)])
async def test_log_probabilities_of_prompts_count_once_for_each_choice(
    open_gateway: Open, mesh, n, status
):
    num_bytes = echo.LOGPROB_BYTES * len(TEXT) * 3
    gateway = await open_gateway(
        mesh.address, max_request_bytes=2048, max_held_bytes=(num_bytes + 2048) * 4 // 3
    )
    mesh.answer("y")
    asked = {"model": "fake", "prompt": TEXT, "echo": True, "logprobs": 2, "n": n}
    response = await gateway.post("/v1/completions", asked)
    assert response.status_code == status
    if status == 413:
        error = response.json()["error"]
        assert (error["code"], error["param"]) == ("body_too_large", "logprobs")
        assert mesh.requests == []


async def test_a_long_prompt_is_streamed_in_parts(open_gateway: Open, mesh):
    gateway = await open_gateway(mesh.address)
    asked = {"model": "fake", "prompt": TEXT, "echo": True, "logprobs": 0}
    for _ in range(2):
        mesh.answer("y")
    (whole,) = (await gateway.post("/v1/completions", asked)).json()["choices"]
    *parts, _ = await gateway.events("/v1/completions", asked)
    told = [part["choices"][0] for part in parts[:3]]
    assert [len(each["logprobs"]["tokens"]) for each in told] == [*[echo.PART_TOKENS] * 2, 3]
    assert "".join(each["text"] for each in told) == TEXT
    for name, column in whole["logprobs"].items():
        assert [entry for each in told for entry in each["logprobs"][name]] == column[: len(TEXT)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(value=JSON.filter(lambda value: "inf" not in repr(value)), size=st.integers(1, 4))
def test_long_json_is_that_of_the_encoder(value, size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_text, "PIECE", size)
        response = asyncio.run(long_json(lambda: value))
    assert json.loads(response.body) == value
    assert response.body.decode() == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


async def test_the_encoder_never_has_more_than_a_piece(monkeypatch):
    sizes = []

    def written(value: object) -> str:
        sizes.append(len(value) if isinstance(value, list) else 0)
        return json.dumps(value)

    monkeypatch.setattr(json_text, "write_json", written)
    tops = [{"a": 0.5, "b": 0.25}] * 3_000
    choices = [{"logprobs": {"tokens": list(range(3_000)), "top_logprobs": tops}}] * 2
    await long_json(lambda: {"choices": choices})
    assert max(sizes) == json_text.PIECE

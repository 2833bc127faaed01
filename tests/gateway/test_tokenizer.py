"""POST /tokenize, POST /detokenize and the echo of prompts, over a mesh whose tokens are bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import grpc
import pytest
from tests.gateway.conftest import Gateway, Open

from specmesh.client.testing import FakeMesh
from specmesh.gateway.errors import ApiError
from specmesh.gateway.requests.tokenization import detokenize_request, tokenize_request

MODEL = "fake"
MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture
def mesh() -> Iterator[FakeMesh]:
    with FakeMesh() as mesh:
        yield mesh


@pytest.fixture
async def gateway(open_gateway: Open, mesh: FakeMesh) -> AsyncIterator[Gateway]:
    return await open_gateway(mesh.address, served_model_name="gpt-4")


async def test_a_text_is_tokenized(gateway):
    sent = await gateway.post("/tokenize", {"model": MODEL, "prompt": "hé"})
    assert sent.status_code == 200, sent.text
    assert sent.json() == {
        "count": 3,
        "max_model_len": 0,
        "tokens": [0x68, 0xC3, 0xA9],
        "token_strs": None,
    }

"""Who is let into the mesh."""

from __future__ import annotations

import asyncio

import pytest
from tests.orchestrator.model import TOKENIZER_JSON, VOCAB_SIZE, model_info, train_tokenizer

from specmesh.orchestrator.replicas.target import TargetRegistry
from specmesh.orchestrator.replicas.transport.peer_model import PeerModel
from specmesh.serving.templates.tokenizers import fingerprint

TARGET = PeerModel(model_info("toy"), TOKENIZER_JSON)
OTHER_JSON = train_tokenizer(280).to_str()


@pytest.fixture
async def registry() -> TargetRegistry:
    registry = TargetRegistry()
    assert await registry.admit_verifier(TARGET) is None
    return registry


async def test_first_replica_defines_the_target():
    registry = TargetRegistry()
    assert registry.known is None
    await registry.admit_verifier(TARGET)
    assert registry.known is not None
    assert registry.known.info == TARGET.info
    assert registry.known.tokenizer.encode("hello").ids


async def test_target_without_tokenizer_is_refused():
    registry = TargetRegistry()
    refusal = await registry.admit_verifier(PeerModel(model_info("toy"), ""))
    assert refusal == "the target has no tokenizer"
    assert registry.known is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "other"),
        ("vocab_size", 12),
        ("tokenizer_fingerprint", "beef"),
        ("num_parameters", 8),
        ("context_tokens", 64),
        ("weights_digest", "0123456789ab"),
        ("dtype", "bfloat16"),
    ],
)
async def test_replica_of_another_model_is_refused(registry, field, value):
    info = model_info("toy")
    setattr(info, field, value)
    refusal = await registry.admit_verifier(PeerModel(info, TOKENIZER_JSON))
    assert refusal is not None
    assert field in refusal
    assert repr(value) in refusal
    assert registry.known.info == TARGET.info


async def test_replica_that_ends_texts_elsewhere_is_refused(registry):
    info = model_info("toy", end_of_text_ids=[3])
    refusal = await registry.admit_verifier(PeerModel(info, TOKENIZER_JSON))
    assert "its end_of_text_ids is [3], not [0]" in refusal


async def test_commit_is_told_but_need_not_be_known(registry):
    info = model_info("toy", revision="0123456789abcdef")
    assert await registry.admit_verifier(PeerModel(info, TOKENIZER_JSON)) is None
    info.dtype = "bfloat16"
    refusal = await registry.admit_verifier(PeerModel(info, TOKENIZER_JSON))
    assert "'toy' (bfloat16, revision 0123456789ab): its dtype is 'bfloat16', not ''" in refusal


async def test_second_replica_is_admitted(registry):
    assert await registry.admit_verifier(TARGET) is None


async def test_drafter_with_the_targets_tokenizer_is_admitted(registry):
    drafter = PeerModel(model_info("small", num_parameters=1), TOKENIZER_JSON)
    assert await registry.admit_drafter(drafter) is None


async def test_drafter_that_works_on_any_ids_is_admitted(registry):
    info = model_info("prompt-lookup", tokenizer_fingerprint="", vocab_size=0)
    assert await registry.admit_drafter(PeerModel(info, "")) is None


async def test_drafter_without_a_tokenizer_must_have_the_targets_vocabulary(registry):
    info = model_info("guesser", tokenizer_fingerprint="", vocab_size=VOCAB_SIZE)
    assert await registry.admit_drafter(PeerModel(info, "")) is None
    info.vocab_size = 12
    refusal = await registry.admit_drafter(PeerModel(info, ""))
    assert refusal == (
        f"the vocabularies of target 'toy' and drafter 'guesser' have {VOCAB_SIZE} and 12 tokens"
    )


async def test_drafter_with_the_targets_tokenizer_may_be_padded_to_another_size(registry):
    info = model_info("small", vocab_size=VOCAB_SIZE + 64)
    assert await registry.admit_drafter(PeerModel(info, TOKENIZER_JSON)) is None


async def test_drafter_with_another_tokenizer_is_told_how_it_differs(registry):
    info = model_info("small", tokenizer_fingerprint=fingerprint(OTHER_JSON))
    refusal = await registry.admit_drafter(PeerModel(info, OTHER_JSON))
    assert refusal is not None
    assert "'toy'" in refusal
    assert "'small'" in refusal
    assert "has 300 tokens, the drafter's 280" in refusal


async def test_drafter_waits_until_the_target_is_known():
    registry = TargetRegistry()
    admission = asyncio.create_task(registry.admit_drafter(TARGET))
    abandoned = asyncio.create_task(registry.admit_drafter(TARGET))
    await asyncio.sleep(0)
    assert not admission.done()
    abandoned.cancel()  # one peer going must not take the target from the others
    await asyncio.sleep(0)
    await registry.admit_verifier(TARGET)
    assert await admission is None

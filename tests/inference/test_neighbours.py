"""What a session is told is its own affair: nobody who shares its forwards may change it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.devices import device
from tests.inference.rounding import bound
from transformers import AutoModelForCausalLM, LlamaConfig, Phi3Config, PhimoeConfig
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRotaryEmbedding

from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.model import Cancellation, ForwardRequest, ModelNotLoadable
from specmesh.inference.models.transformers_model import TransformersModel

pytestmark = pytest.mark.numbers

CONTEXT_TOKENS = 128
ORIGINAL_TOKENS = 32
TINY = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
    "max_position_embeddings": CONTEXT_TOKENS,
}
BEGINNING, ANSWER = [5, 6, 7, 8], TokenTree.chain([9, 10, 11, 12])
LONG = [int(token) for token in np.random.default_rng(4).integers(1, 60, CONTEXT_TOKENS)]


def rope(kind, **more):
    return {"rope_type": kind, "rope_theta": 10000.0, "factor": 4.0, **more}


def llama(kind="default", **more):
    return LlamaConfig(**TINY, rope_parameters=rope(kind, **more))


def longrope(original):
    """As Phi-3's: between short and long the last factors differ more than the first."""
    short, long = [1.0, 1.1, 1.3, 2.0], [1.1, 1.5, 8.0, 60.0]
    return Phi3Config(
        **TINY,
        rope_parameters=rope("longrope", short_factor=short, long_factor=long),
        original_max_position_embeddings=original,
    )


def louder_when_long():
    """Computes by the farthest position in the model's own code too."""
    ones = [1.0] * 4
    mscale = {"short_mscale": 1.0, "long_mscale": 1.2}
    original = {"original_max_position_embeddings": ORIGINAL_TOKENS}
    factors = {"short_factor": ones, "long_factor": ones}
    return PhimoeConfig(
        **TINY,
        sliding_window=None,
        rope_parameters=rope("longrope", **factors, **mscale, **original),
    )


ORIGINAL = {"original_max_position_embeddings": ORIGINAL_TOKENS}
SERVED = {
    "default": llama(),
    "linear": llama("linear"),
    "llama3": llama("llama3", low_freq_factor=1.0, high_freq_factor=4.0, **ORIGINAL),
    "yarn": llama("yarn", **ORIGINAL),
    "dynamic": llama("dynamic"),  # changes beyond the context only
    "longrope that never gets long": longrope(CONTEXT_TOKENS),
}
REFUSED = {"longrope": longrope(ORIGINAL_TOKENS), "own code": louder_when_long()}


def load(folder, dtype="float32"):
    return TransformersModel.load(str(folder), dtype=dtype, device=device(), cache_bytes=1 << 20)


def told(folder, neighbour):
    """What a short session is told in one forward with a session of ``neighbour`` tokens."""
    model = load(folder)
    first, second = (
        model.open(tokens, Cancellation(), len(ANSWER)) for tokens in (neighbour, BEGINNING)
    )
    _, logits = model.forward([ForwardRequest(first, EMPTY), ForwardRequest(second, ANSWER)])
    return logits


@pytest.mark.parametrize("kind", SERVED)
def test_a_session_is_told_the_same_beside_a_short_one_and_one_that_fills_its_context(
    tmp_path, save_tiny, kind
):
    save_tiny(tmp_path, SERVED[kind])
    beside_long, beside_short = told(tmp_path, LONG), told(tmp_path, LONG[:1])
    apart = 2 * bound(SERVED[kind], beside_short)  # both are rounded
    np.testing.assert_allclose(beside_long, beside_short, rtol=0, atol=apart)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("kind", REFUSED)
def test_model_that_places_all_tokens_by_the_farthest_is_refused(tmp_path, save_tiny, kind, dtype):
    save_tiny(tmp_path, REFUSED[kind])
    with pytest.raises(
        ModelNotLoadable,
        match=r"another session is at the end of its context \(rope type: longrope;",
    ):
        load(tmp_path, dtype)


def test_it_is_served_within_its_original_context_as_the_documents_say(tmp_path, save_tiny):
    config = longrope(ORIGINAL_TOKENS)
    del config.rope_parameters["factor"]  # hardly any such model says it
    save_tiny(tmp_path, config)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path)
    with torch.inference_mode():
        wanted = plain(torch.tensor([[*BEGINNING, *ANSWER.token_ids]])).logits[0]
    config.max_position_embeddings = ORIGINAL_TOKENS
    config.rope_parameters["factor"] = CONTEXT_TOKENS / ORIGINAL_TOKENS
    config.save_pretrained(tmp_path)
    model = load(tmp_path)
    logits = model.open(BEGINNING, Cancellation(), len(ANSWER)).score(ANSWER)
    assert model.description.context_tokens == ORIGINAL_TOKENS
    expected = wanted[len(BEGINNING) - 1 :].numpy()
    np.testing.assert_allclose(logits, expected, rtol=0, atol=2 * bound(config, expected))


def test_it_is_refused_by_what_it_does_whatever_it_is_called(folders, monkeypatch):
    plain = LlamaRotaryEmbedding.forward

    def stretch(self, x, position_ids):
        farthest = int(position_ids.max()) + 1
        scale = 1.0 if farthest < CONTEXT_TOKENS else 0.5
        return plain(self, x, position_ids * scale)

    monkeypatch.setattr(LlamaRotaryEmbedding, "forward", stretch)
    with pytest.raises(ModelNotLoadable, match=r"end of its context \(rope type: default;"):
        load(folders["llama"])


def test_model_that_mixes_tokens_side_by_side_in_a_forward_is_refused(folders, monkeypatch):
    """They may be another session's, or another branch's."""
    plain = LlamaMLP.forward

    def shift(self, x):
        before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)
        return plain(self, x + before)

    monkeypatch.setattr(LlamaMLP, "forward", shift)
    with pytest.raises(ModelNotLoadable, match="LlamaForCausalLM computes different logits with"):
        load(folders["llama"])


def test_model_that_counts_positions_by_itself_is_refused(folders, monkeypatch):
    plain = LlamaRotaryEmbedding.forward

    def count(self, x, position_ids):
        return plain(self, x, torch.arange(x.shape[1], device=x.device)[None])

    monkeypatch.setattr(LlamaRotaryEmbedding, "forward", count)
    with pytest.raises(ModelNotLoadable, match="LlamaForCausalLM computes different logits with"):
        load(folders["llama"])

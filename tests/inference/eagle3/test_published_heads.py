"""Heads in published formats compute what their definition says, written anew with transformers'
layers."""

import pytest
import torch
from tests.inference.eagle3.reference import (
    DRAFT_VOCAB,
    LAYER_IDS,
    SPECULATIVE_TOKENS,
    TARGET,
    guessed_ids,
    layer_config,
    random_reference,
    tree_of,
    write_authors,
    write_speculators,
)

from specmesh.inference.models.heads.eagle3.draft_attention import DraftAttention
from specmesh.inference.models.heads.eagle3.layer_tap import look_inside
from specmesh.inference.models.heads.eagle3.published import AUTHORS_DEPTH
from specmesh.inference.models.heads.registry import load_heads

pytestmark = pytest.mark.cpu_only("heads without an engine")


KINDS = {
    "plain": {},
    "norm_before_residual": {"norm_before_residual": True},
    "norm_before_fc": {"norm_before_fc": True},
    "fc_norm": {"fc_norm": True},
    "norm_output": {"norm_output": True, "norm_before_residual": True},
}
LAYERS = {
    "llama": {},
    "default rope": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "qwen3": {"model_type": "qwen3"},
}


def guesses(heads, target, text, draft):
    """The logits after the text, and after each token of a draft along it."""
    hidden = look_inside(target, text[None], heads.layer_ids).hidden[0]
    states = heads.fuse(hidden[:-1])
    attend, found = CausalAttention(), []
    states = heads.read(text[1:], states, torch.arange(1, len(text)), attend)[-1:]
    for place, token in enumerate(draft, start=len(text)):
        found.append(heads.logits(states)[0])
        states = heads.read(torch.tensor([token]), states, torch.tensor([place]), attend)
    return torch.stack([*found, heads.logits(states)[0]])


class CausalAttention:
    """An ``Attend`` that remembers, as a verifier does for one path."""

    def __init__(self):
        self._keys, self._values = [], []

    def __call__(self, query, key, value):
        self._keys.append(key)
        self._values.append(value)
        keys, values = torch.cat(self._keys, 2), torch.cat(self._values, 2)
        mask = torch.ones(query.shape[2], keys.shape[2], dtype=torch.bool)
        mask = mask.tril(keys.shape[2] - query.shape[2])
        return torch.nn.functional.scaled_dot_product_attention(
            query, keys, values, attn_mask=mask, enable_gqa=True
        ).transpose(1, 2)


def expected(head, target, text, draft):
    hidden = look_inside(target, text[None], LAYER_IDS).hidden[0, :-1]
    tokens = torch.cat([text, torch.tensor(draft, dtype=torch.long)])
    logits = torch.full((len(draft) + 1, TARGET.vocab_size), -torch.inf)
    embedded = target.get_input_embeddings()(tokens)
    logits[:, guessed_ids()] = head.guesses(embedded, hidden)
    return logits


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_speculators_head_guesses_what_it_should(target, digest, text, tmp_path, kind, layer):
    head = random_reference(layer_config(**LAYERS[layer]), **KINDS[kind])
    folder = write_speculators(tmp_path, head, "somebody/target-8b")
    heads = load_heads(folder, target.model, digest)
    assert heads.target_digest == digest
    assert heads.max_depth == SPECULATIVE_TOKENS
    assert heads.layer_ids == LAYER_IDS
    draft = [7, 50, 3, 120, 9]
    want, got = (
        each(head_, target.model, text, draft)
        for each, head_ in ((expected, head), (guesses, heads))
    )
    assert (got > -torch.inf).sum(-1).tolist() == [DRAFT_VOCAB] * 6
    torch.testing.assert_close(got, want, rtol=0, atol=1e-4)


@pytest.mark.parametrize("write", [write_speculators, write_authors])
def test_the_tree_is_that_of_the_definition(target, digest, text, tmp_path, write):
    head = random_reference(layer_config())
    names = ("target-8b",) if write is write_speculators else ()
    heads = load_heads(write(tmp_path, head, *names), target.model, digest)
    trees = [
        tree_of(lambda path, each=each, of=of: each(of, target.model, text, path)[-1], 3, 3)
        for each, of in ((expected, head), (guesses, heads))
    ]
    assert len(trees[0]) == 3 + 9 + 27
    assert trees[0] == trees[1]


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Eagle3LlamaForCausalLM"])
def test_flat_configurations_are_told_by_their_vocabulary_or_name(
    target, digest, tmp_path, architecture
):
    head = random_reference(layer_config())
    folder = write_authors(tmp_path, head, architectures=[architecture])
    heads = load_heads(folder, target.model, digest)
    assert heads.layer_ids == LAYER_IDS
    assert heads.max_depth == AUTHORS_DEPTH


def test_layers_of_specforge_are_those_whose_output_is_meant(target, digest, tmp_path):
    eagle_config = {"eagle_aux_hidden_state_layer_ids": [1, 3, 4]}
    folder = write_authors(tmp_path, random_reference(layer_config()), eagle_config=eagle_config)
    assert load_heads(folder, target.model, digest).layer_ids == LAYER_IDS


def test_layers_that_speculators_names_are_read(target, digest, tmp_path):
    head = random_reference(layer_config())
    folder = write_speculators(tmp_path, head, None, eagle_aux_hidden_state_layer_ids=[0, 3, 8])
    assert load_heads(folder, target.model, digest).layer_ids == (0, 3, 8)


def test_drafts_from_all_positions_are_those_from_each(target, digest, text, tmp_path):
    head = random_reference(layer_config(), norm_before_residual=True)
    heads = load_heads(write_speculators(tmp_path, head, None), target.model, digest)
    hidden = look_inside(target.model, text[None], heads.layer_ids).hidden[0]
    states, attend = heads.fuse(hidden[:-4]), DraftAttention()
    for depth in range(3):
        read = slice(1 + depth, 1 + depth + len(states))
        states = heads.read(text[read], states, torch.arange(20)[read], attend)
        logits = heads.logits(states)
        for start in (1, 5, 16):
            alone = guesses(heads, target.model, text[: start + 1], text[start + 1 :][:depth])
            torch.testing.assert_close(logits[start - 1], alone[-1], rtol=0, atol=1e-4)

"""Which tokenizers are the same, and what is said of two that are not."""

from __future__ import annotations

import copy
import json

import pytest

from specmesh.serving.templates.tokenizers import difference, fingerprint

BPE = {
    "version": "1.0",
    "added_tokens": [{"id": 0, "content": "<eos>", "special": True}],
    "normalizer": None,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
    "model": {
        "type": "BPE",
        "vocab": {"<eos>": 0, "a": 1, "b": 2, "ab": 3, "ba": 4},
        "merges": [["a", "b"], ["b", "a"]],
    },
}
UNIGRAM = {"model": {"type": "Unigram", "vocab": [["<unk>", 0.0], ["a", -1.0], ["b", -2.0]]}}


def changed(tokenizer: dict, **model: object) -> str:
    other = copy.deepcopy(tokenizer)
    other["model"] |= model
    return json.dumps(other)


def test_order_in_which_a_vocabulary_is_listed_does_not_matter():
    listed_backwards = dict(reversed(BPE["model"]["vocab"].items()))
    assert fingerprint(changed(BPE, vocab=listed_backwards)) == fingerprint(json.dumps(BPE))


def test_what_does_not_decide_ids_does_not_matter():
    other = BPE | {"version": "9", "decoder": {"type": "Fuse"}, "padding": {"length": 3}}
    assert fingerprint(json.dumps(other)) == fingerprint(json.dumps(BPE))


def test_no_tokenizer_has_no_fingerprint():
    assert fingerprint("") == ""


VOCAB = BPE["model"]["vocab"]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (changed(BPE, vocab=VOCAB | {"bb": 5}), "vocabulary has 5 tokens, the drafter's 6"),
        (
            changed(BPE, vocab={"<eos>": 0, "a": 1, "b": 2, "abb": 3, "ba": 4}),
            "token id 3 is 'ab' for the target and 'abb' for the drafter",
        ),
        (
            changed(BPE, vocab=VOCAB | {"a": 2, "b": 1}),
            "token id 1 is 'a' for the target and 'b' for the drafter",
        ),
        (
            changed(BPE, vocab={"<eos>": 0, "a": 1, "b": 2, "ab": 3, "ba": 9}),
            "token id 4 is 'ba' for the target and None for the drafter",
        ),
        (changed(BPE, merges=[["b", "a"], ["a", "b"]]), "the rules differ in model"),
        (json.dumps(BPE | {"normalizer": {"type": "NFC"}}), "the rules differ in normalizer"),
        (
            json.dumps(BPE | {"added_tokens": [{"id": 5, "content": "<pad>"}]}),
            "vocabulary has 5 tokens, the drafter's 6",
        ),
    ],
    ids=[
        "larger",
        "one_token",
        "two_tokens_swapped",
        "gap_in_the_ids",
        "merges",
        "normalizer",
        "added_token",
    ],
)
def test_difference_is_told(other, said):
    ours = json.dumps(BPE)
    assert fingerprint(other) != fingerprint(ours)
    assert said in difference(ours, other)


def test_tokens_of_a_unigram_model_are_numbered_as_listed():
    other = changed(UNIGRAM, vocab=[["<unk>", 0.0], ["b", -1.0], ["a", -2.0]])
    assert "token id 1 is 'a'" in difference(json.dumps(UNIGRAM), other)

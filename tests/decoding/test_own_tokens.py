"""The tokens that a device may find for a verification."""

from dataclasses import fields, replace

import numpy as np
import pytest
from tests.decoding.test_race import logits_of

from specmesh.decoding.acceptance import verify
from specmesh.decoding.grammar import Grammar, GrammarKind
from specmesh.decoding.own_tokens import OwnTokens
from specmesh.decoding.sampling import AcceptanceMode, Sampling, choose, coupled
from specmesh.decoding.trees.tree import EMPTY, TokenTree


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": AcceptanceMode.REJECTION},
        {"top_k": 5},
        {"min_p": 0.1},
        {"typical_p": 0.9},
        {"logit_bias": ((3, 1.0),)},
    ],
)
def test_nothing_is_asked_for_where_the_best_of_all_tokens_does_not_help(settings):
    assert OwnTokens.of(Sampling(**settings), 3) is None


HEEDED = {"temperature", "top_p", "seed", "mode"}
"""The fields that do not keep a token from being found before the others are applied."""
OF_OTHERS = {"num_prompt_tokens", "end_token_ids"}
"""Fields that have no effect by themselves."""
SOME = {
    "top_k": 5,
    "logit_bias": ((3, 1.0),),
    "banned_sequences": ((3, 4),),
    "min_tokens": 2,
    "grammar": Grammar(GrammarKind.JSON_OBJECT),
}


@pytest.mark.parametrize(
    "field",
    [each for each in fields(Sampling) if each.name not in HEEDED | OF_OTHERS],
    ids=lambda field: field.name,
)
def test_every_other_field_counts_wherever_tokens_are_found_and_replicas_are_chosen(field):
    of_its_type = 0.5 if isinstance(field.default, float) else (3,)
    sampling = Sampling(**{field.name: SOME.get(field.name, of_its_type)})
    assert OwnTokens.of(sampling, 3) is None
    assert sampling.needs_processing or field.name == "top_k"


@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.3])
@pytest.mark.parametrize("shape", ["normal", "peaked", "flat"])
def test_verdict_is_the_same_with_and_without_the_first_token(shape, top_p):
    rows = np.array([logits_of(shape, 20_000, seed) for seed in range(4)])
    for seed in range(10):
        sampling = Sampling(0.8, top_p=top_p, seed=seed)
        tokens = [choose(row, sampling, 6 + depth) for depth, row in enumerate(rows)]
        first = OwnTokens.of(sampling, 6)
        first.found[0] = int(coupled(rows[0], replace(sampling, top_p=1.0), 6, 1).token_ids[0])
        tree = TokenTree.chain(tokens[:3])
        found = verify(tree, rows, sampling, 6, own=first)
        assert found == verify(tree, rows, sampling, 6)
        assert (*tokens[:3], found.next_token) == tuple(tokens)


def test_tokens_found_save_their_rows():
    """As where logits are on a device: only rows without a token are read."""
    rows = np.array([logits_of("normal", 100, seed) for seed in range(3)])
    greedy = Sampling(0)
    tokens = [int(row.argmax()) for row in rows]
    own = OwnTokens.of(greedy, 6)
    own.found.update({0: tokens[0], 1: tokens[1]})
    read = []

    class Rows:
        shape = rows.shape

        def __len__(self):
            return len(rows)

        def __getitem__(self, node):
            read.append(node)
            return rows[node]

    found = verify(TokenTree.chain(tokens[:2]), Rows(), greedy, 6, own=own)
    assert (found.accepted_nodes, found.next_token) == ((1, 2), tokens[2])
    assert read == [2]


def test_first_token_saves_the_race_of_its_row(monkeypatch):
    row = logits_of("normal", 20_000)
    first = OwnTokens.of(Sampling(seed=4), 6)
    first.found[0] = choose(row, Sampling(seed=4), 6)
    monkeypatch.delattr("specmesh.decoding.sampling.winner")
    found = verify(EMPTY, row[None], Sampling(seed=4), 6, own=first)
    assert found.next_token == first.found.get(0)

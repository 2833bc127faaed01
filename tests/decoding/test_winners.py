"""Races of several rows run together, against those run one by one."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decoding.test_race import SHAPES, logits_of

from specmesh.decoding.acceptance import verify
from specmesh.decoding.grammar import Grammar, GrammarKind
from specmesh.decoding.logits_row import SMALL
from specmesh.decoding.sampling import AcceptanceMode, Sampling, choose
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.decoding.winners import OwnTokens, find_together

SIZES = [SMALL + 1, 32_768, 70_000]


def asked(samplings, positions):
    found = [OwnTokens.of(*each) for each in zip(samplings, positions, strict=True)]
    assert None not in found
    return found


@pytest.mark.parametrize("size", SIZES)
def test_winners_of_rows_together_are_those_of_each_alone(size):
    rows = [logits_of(shape, size, seed) for shape in SHAPES for seed in (0, 1)]
    for temperature in (1e-6, 0.05, 0.8, 5.0):
        samplings = [Sampling(temperature, seed=9 + number) for number in range(len(rows))]
        firsts = asked(samplings, range(len(rows)))
        find_together(firsts, rows)
        for number, (first, row, sampling) in enumerate(zip(firsts, rows, samplings, strict=True)):
            assert first.found.get(0) == choose(row, sampling, number)


@settings(deadline=None, max_examples=30)
@given(
    st.integers(SMALL + 1, 70_000),
    st.lists(
        st.tuples(
            st.sampled_from(list(SHAPES)),
            st.integers(0, 2**64 - 1),
            st.integers(0, 2**20),
            st.floats(2**-10, 100, width=32),
        ),
        min_size=1,
        max_size=5,
    ),
)
def test_any_rows_have_their_own_winners(size, drawn):
    rows = [logits_of(shape, size, seed) for shape, seed, _, _ in drawn]
    samplings = [Sampling(temperature, seed=seed) for _, seed, _, temperature in drawn]
    positions = [position for _, _, position, _ in drawn]
    firsts = asked(samplings, positions)
    find_together(firsts, rows)
    expected = [choose(*each) for each in zip(rows, samplings, positions, strict=True)]
    assert [first.found.get(0) for first in firsts] == expected


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_broken_row_is_left_for_its_request_to_refuse(bad):
    rows = [logits_of("normal", 20_000, seed) for seed in range(4)]
    rows[1][700] = bad
    rows[3][:] = -np.inf
    firsts = asked([Sampling(seed=seed) for seed in range(4)], range(4))
    find_together(firsts, rows)
    for number in (0, 2):
        assert firsts[number].found.get(0) == choose(rows[number], Sampling(seed=number), number)
    for number in (1, 3):
        assert firsts[number].found.get(0) is None
        with pytest.raises(FloatingPointError):
            verify(EMPTY, rows[number][None], Sampling(), number, own=firsts[number])


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
        find_together([first], [rows[0]])
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
    find_together([first], [row])
    monkeypatch.delattr("specmesh.decoding.sampling.winner")
    found = verify(EMPTY, row[None], Sampling(seed=4), 6, own=first)
    assert found.next_token == first.found.get(0)

"""Masks of tokens, and that speculation below them is as lossless as without."""

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decoding.test_losslessness import (
    EXACT,
    NUM_SAMPLES,
    PROMPT,
    decode_alone,
    exact_law,
    excess,
    random_trees,
    score,
    table,
)

from specmesh.decoding.acceptance import verify
from specmesh.decoding.drafting import draw_children
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.grammar import MAX_GRAMMAR_BYTES, Grammar, GrammarKind
from specmesh.decoding.processing.masks import only
from specmesh.decoding.processing.processor import LogitProcessor
from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.decoding.trees.tree import EMPTY

ANY = Grammar(GrammarKind.REGEX, ".*")
"""The grammar that the masks here stand for; its source plays no part."""


def bits(allowed):
    return np.packbits(np.asarray(allowed, bool), bitorder="little")


class ToyMask:
    """Allows what depends on all tokens before, as a grammar does; at least one token."""

    def __init__(self, seed, vocab_size, answer):
        self.seed, self.vocab_size, self.answer = seed, vocab_size, tuple(answer)

    def allowed(self, path):
        rng = np.random.default_rng([self.seed, *self.answer, *path])
        allowed = rng.random(self.vocab_size) < 0.5
        allowed[rng.integers(self.vocab_size)] = True
        return bits(allowed)


def masked(model, seed, vocab_size):
    """``model`` as its request sees it."""

    def logits(tokens):
        mask = ToyMask(seed, vocab_size, tokens[len(PROMPT) :])
        return np.where(
            np.unpackbits(mask.allowed(()), count=vocab_size, bitorder="little") == 1,
            model(tokens),
            np.float32(-np.inf),
        )

    return logits


def processor_for(sampling, prefix, seed, vocab_size):
    return LogitProcessor(
        replace(sampling, grammar=ANY), prefix, ToyMask(seed, vocab_size, prefix[len(PROMPT) :])
    )


def speculate(target, draft, sampling, seed, vocab_size, num_tokens):
    tokens = PROMPT
    while len(tokens) < len(PROMPT) + num_tokens:
        tree, distributions = draft(tokens)
        rows = processor_for(sampling, tokens, seed, vocab_size).rows(
            score(target, tokens, tree), tree
        )
        found = verify(tree, rows, sampling, len(tokens), distributions)
        tokens = (*tokens, *tree.tokens_on(found.accepted_nodes), found.next_token)
    return tokens[len(PROMPT) : len(PROMPT) + num_tokens]


def drafted(prefix, sampling, drafter, branching, mask_seed, vocab_size):
    """A tree of a drafter that has the mask, or of one that has none if ``mask_seed`` is None."""
    tree, distributions, frontier = EMPTY, {}, [0]
    for depth, count in enumerate(branching):
        below = []
        for node in frontier:
            path = tree.tokens_on(tree.path(node))
            row = drafter((*prefix, *path))
            if mask_seed is not None:
                row = processor_for(sampling, prefix, mask_seed, vocab_size).row(row, path)
            drawn = draw_children(row, sampling, len(prefix) + depth, count)
            if drawn.distribution is not None:
                distributions[node] = drawn.distribution
            below += range(len(tree) + 1, len(tree) + 1 + len(drawn.children))
            tree = tree.extend(drawn.children, [node] * len(drawn.children))
        frontier = below
    return tree, distributions


@settings(max_examples=60, deadline=None)
@given(
    EXACT,
    st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)),
    st.integers(2, 8),
    st.booleans(),
    st.lists(st.integers(1, 3), max_size=4),
)
def test_any_drafter_yields_the_targets_own_tokens(
    sampling, seeds, vocab_size, drafter_has_the_mask, branching
):
    target_seed, drafter_seed, mask_seed = seeds
    target, drafter = table(target_seed, vocab_size), table(drafter_seed, vocab_size)

    def draft(prefix):
        known = mask_seed if drafter_has_the_mask else None
        return drafted(prefix, sampling, drafter, branching, known, vocab_size)

    found = speculate(target, draft, sampling, mask_seed, vocab_size, num_tokens=10)
    alone = masked(target, mask_seed, vocab_size)
    assert found == decode_alone(alone, sampling, num_tokens=10)


@settings(max_examples=60, deadline=None)
@given(EXACT, st.integers(0, 99), st.integers(0, 99), st.data())
def test_any_tree_yields_the_targets_own_tokens(sampling, target_seed, mask_seed, data):
    target = table(target_seed, vocab_size=3)

    def draft(prefix):
        return data.draw(random_trees(vocab_size=3)), {}

    found = speculate(target, draft, sampling, mask_seed, 3, num_tokens=8)
    assert found == decode_alone(masked(target, mask_seed, 3), sampling, num_tokens=8)


@pytest.mark.parametrize(("drafter_has_the_mask", "branching"), [(True, [2, 2]), (False, [1, 1])])
def test_rejection_keeps_the_targets_law(drafter_has_the_mask, branching):
    target, drafter, mask_seed = table(3, 4), table(4, 4), 5
    counts = Counter()
    for seed in range(NUM_SAMPLES):
        sampling = Sampling(seed=seed, mode=AcceptanceMode.REJECTION)
        known = mask_seed if drafter_has_the_mask else None
        draft = partial(
            drafted,
            sampling=sampling,
            drafter=drafter,
            branching=branching,
            mask_seed=known,
            vocab_size=4,
        )
        counts[speculate(target, draft, sampling, mask_seed, 4, num_tokens=3)] += 1
    assert excess(counts, exact_law(masked(target, mask_seed, 4), Sampling())) < 1


def test_a_drafter_that_has_the_mask_and_equals_the_target_is_accepted_whole():
    target, sampling = table(1, 50), Sampling(temperature=1.0, seed=5)
    tree, _ = drafted(PROMPT, sampling, target, [1] * 10, 7, 50)
    rows = processor_for(sampling, PROMPT, 7, 50).rows(score(target, PROMPT, tree), tree)
    assert verify(tree, rows, sampling, len(PROMPT)).accepted_nodes == tuple(range(1, 11))


@given(st.integers(0, 99), st.integers(1, 70), st.integers(1, 70))
def test_only_keeps_the_tokens_that_are_allowed(seed, vocab_size, num_known):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=vocab_size).astype(np.float32)
    allowed = rng.random(num_known) < 0.5
    found = only(bits(allowed), logits)
    whole = np.zeros(vocab_size, bool)
    whole[: min(vocab_size, num_known)] = allowed[:vocab_size]
    assert found.dtype == logits.dtype
    assert np.array_equal(found, np.where(whole, logits, -np.inf))


def test_only_shows_a_logit_that_is_no_number():
    logits = np.array([1.0, np.nan, 2.0], np.float32)
    assert np.isnan(only(bits([True, False, True]), logits)[1])


class Fixed:
    def __init__(self, *allowed):
        self.bits = bits(np.isin(np.arange(8), allowed))

    def allowed(self, path):
        return self.bits


@pytest.mark.parametrize(
    "fields",
    [
        {"banned_token_ids": (2, 5)},
        {"allowed_token_ids": (1, 3)},
        {"min_tokens": 9, "end_token_ids": (2, 5)},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_bans_are_not_heeded_where_they_leave_nothing_of_the_grammar(fields):
    logits = np.arange(8, dtype=np.float32)
    sampling = Sampling(grammar=ANY, **fields)
    row = LogitProcessor(sampling, PROMPT, Fixed(2, 5)).row(logits)
    assert np.flatnonzero(np.isfinite(row)).tolist() == [2, 5]
    assert np.array_equal(row[[2, 5]], logits[[2, 5]])


def test_bans_are_heeded_where_they_leave_something():
    logits = np.arange(8, dtype=np.float32)
    sampling = Sampling(grammar=ANY, banned_token_ids=(5,), logit_bias=((2, 1.5),))
    row = LogitProcessor(sampling, PROMPT, Fixed(2, 5)).row(logits)
    assert {token: row[token] for token in np.flatnonzero(np.isfinite(row))} == {2: 3.5}


def test_a_model_without_a_guess_keeps_having_none():
    guess = np.full(8, -np.inf, np.float32)
    guess[3] = 0
    sampling = Sampling(grammar=ANY)
    assert (LogitProcessor(sampling, PROMPT, Fixed(2, 5)).row(guess) == -np.inf).all()
    assert LogitProcessor(sampling, PROMPT, Fixed(3)).row(guess)[3] == 0


def test_a_grammar_has_a_source_within_its_limits():
    with pytest.raises(InvalidField, match="regex: must not be empty"):
        Grammar(GrammarKind.REGEX)
    with pytest.raises(InvalidField, match="ebnf: is longer than 65536 bytes"):
        Grammar(GrammarKind.EBNF, "é" * (MAX_GRAMMAR_BYTES // 2 + 1))
    for texts in ([], ["a", ""]):
        with pytest.raises(
            InvalidField, match=r"choice\.texts: must hold texts, none of them empty"
        ):
            Grammar.of_choices(texts)
    assert Grammar.of_choices(['"', "é"]).choices == ['"', "é"]
    assert Grammar(GrammarKind.JSON_OBJECT).text == ""
    assert Sampling(grammar=ANY).needs_processing
    assert Sampling(grammar=ANY).without_processing.grammar is None

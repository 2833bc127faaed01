"""Losslessness, through the loop that serving runs: draft, verify, commit.

Models are random tables: logits as a function of the tokens so far.
"""

import itertools
import math
from collections import Counter
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmesh.decoding.acceptance import verify
from specmesh.decoding.drafting import draw_children
from specmesh.decoding.noise import Purpose, uniforms
from specmesh.decoding.sampling import AcceptanceMode, Distribution, Sampling, choose, warp
from specmesh.decoding.trees.tree import EMPTY, TokenTree

PROMPT = (0, 1)


def table(seed, vocab_size, spread=1.5):
    """A model: logits ``[vocab]`` for any tuple of tokens."""

    @cache
    def logits(tokens):
        rng = np.random.default_rng([seed, *tokens])
        return (spread * rng.normal(size=vocab_size)).astype(np.float32)

    return logits


def draft_tree(drafter, prefix, sampling, branching):
    """A tree with ``branching[i]`` children for every node of depth i."""
    tree, distributions, frontier = EMPTY, {}, [0]
    for depth, count in enumerate(branching):
        new = []
        for node in frontier:
            logits = drafter((*prefix, *tree.tokens_on(tree.path(node))))
            drawn = draw_children(logits, sampling, len(prefix) + depth, count)
            if drawn.distribution is not None:
                distributions[node] = drawn.distribution
            first = len(tree) + 1
            tree = tree.extend(drawn.children, [node] * len(drawn.children))
            new += range(first, len(tree) + 1)
        frontier = new
    return tree, distributions


def score(target, prefix, tree):
    nodes = range(len(tree) + 1)
    return np.stack([target((*prefix, *tree.tokens_on(tree.path(node)))) for node in nodes])


def speculate(target, draft, sampling, num_tokens):
    """``num_tokens`` after the prompt; ``draft(prefix)`` gives a tree and its distributions."""
    tokens = PROMPT
    while len(tokens) < len(PROMPT) + num_tokens:
        tree, distributions = draft(tokens)
        found = verify(tree, score(target, tokens, tree), sampling, len(tokens), distributions)
        tokens = (*tokens, *tree.tokens_on(found.accepted_nodes), found.next_token)
    return tokens[len(PROMPT) : len(PROMPT) + num_tokens]


def decode_alone(target, sampling, num_tokens):
    tokens = PROMPT
    for _ in range(num_tokens):
        tokens = (*tokens, choose(target(tokens), sampling, len(tokens)))
    return tokens[len(PROMPT) :]


# Greedy and coupled: the very tokens.

EXACT = st.builds(
    Sampling,
    temperature=st.one_of(st.just(0.0), st.floats(0.2, 3)),
    top_k=st.sampled_from([0, 1, 3]),
    top_p=st.sampled_from([1.0, 0.8]),
    seed=st.integers(0, 2**64 - 1),
)


@st.composite
def random_trees(draw, vocab_size):
    """Trees that no drafter would draw."""
    nodes = []
    for _ in range(draw(st.integers(0, 8))):
        node = (draw(st.integers(0, len(nodes))), draw(st.integers(0, vocab_size - 1)))
        if node not in nodes:
            nodes.append(node)
    return TokenTree(tuple(token for _, token in nodes), tuple(parent for parent, _ in nodes))


@settings(deadline=None)
@given(
    EXACT,
    st.integers(0, 2**32),
    st.integers(2, 8),
    st.one_of(st.none(), st.integers(0, 2**32)),
    st.lists(st.integers(1, 3), max_size=4),
)
def test_any_drafter_yields_the_targets_own_tokens(
    sampling, target_seed, vocab_size, drafter_seed, branching
):
    target = table(target_seed, vocab_size)
    # Without a seed of its own the drafter is the target.
    drafter = target if drafter_seed is None else table(drafter_seed, vocab_size)

    def draft(prefix):
        return draft_tree(drafter, prefix, sampling, branching)

    found = speculate(target, draft, sampling, num_tokens=12)
    assert found == decode_alone(target, sampling, num_tokens=12)


@settings(deadline=None)
@given(EXACT, st.integers(0, 2**32), st.data())
def test_any_tree_yields_the_targets_own_tokens(sampling, target_seed, data):
    target = table(target_seed, vocab_size=3)

    def draft(prefix):
        return data.draw(random_trees(vocab_size=3)), {}

    found = speculate(target, draft, sampling, num_tokens=8)
    assert found == decode_alone(target, sampling, num_tokens=8)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_drafter_equal_to_the_target_is_accepted_whole(temperature):
    target, sampling = table(1, 50), Sampling(temperature=temperature, seed=5)
    tree, _ = draft_tree(target, PROMPT, sampling, [1] * 10)
    found = verify(tree, score(target, PROMPT, tree), sampling, len(PROMPT))
    assert found.accepted_nodes == tuple(range(1, 11))


# Rejection: the target's distribution.

NUM_TOKENS = 3
NUM_SAMPLES = 3_000


def exact_law(target, sampling):
    """The probability of every continuation of ``NUM_TOKENS`` tokens, enumerated."""
    law = {(): 1.0}
    for _ in range(NUM_TOKENS):
        law = {
            (*tokens, token): probability * p
            for tokens, probability in law.items()
            for token, p in zip(*_columns(warp(target((*PROMPT, *tokens)), sampling)), strict=True)
        }
    return law


def _columns(distribution):
    return distribution.token_ids.tolist(), distribution.probabilities.tolist()


def excess(counts, law):
    """Pearson's chi-square over the value it exceeds with probability 1e-6 by chance.

    Outcomes expected fewer than 5 times are pooled; the quantile is Wilson and Hilferty's.
    """
    assert set(counts) <= set(law), "a text came out that the target never says"
    total = counts.total()
    common = [text for text in law if law[text] * total >= 5]
    cells = [(counts[text], law[text] * total) for text in common]
    rest = (total - sum(c for c, _ in cells), total - sum(e for _, e in cells))
    if rest[1] >= 5:
        cells.append(rest)
    freedom = len(cells) - 1
    statistic = sum((count - expected) ** 2 / expected for count, expected in cells)
    quantile = freedom * (1 - 2 / (9 * freedom) + 4.753 * math.sqrt(2 / (9 * freedom))) ** 3
    return statistic / quantile


def sample(target, draft, sampling):
    """Counts of continuations over seeds; ``draft(prefix, sampling)``."""
    counts = Counter()
    for seed in range(NUM_SAMPLES):
        seeded = replace(sampling, seed=seed, mode=AcceptanceMode.REJECTION)
        draft_seeded = partial(draft, sampling=seeded)
        counts[speculate(target, draft_seeded, seeded, NUM_TOKENS)] += 1
    return counts


SETTINGS = {
    "chain of 2": ([1, 1], Sampling()),
    "chain of 4, past the end": ([1, 1, 1, 1], Sampling(temperature=0.8)),
    "2 children a node": ([2, 2], Sampling()),
    "3 children, then 2": ([3, 2], Sampling(temperature=1.5)),
    "every token a child": ([4, 1], Sampling()),
    "warped": ([2, 1], Sampling(top_k=3, top_p=0.9)),
    "no draft": ([], Sampling()),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_rejection_keeps_the_targets_distribution(setting):
    branching, sampling = SETTINGS[setting]
    target, drafter = table(3, vocab_size=4), table(4, vocab_size=4)

    def draft(prefix, sampling):
        return draft_tree(drafter, prefix, sampling, branching)

    assert excess(sample(target, draft, sampling), exact_law(target, sampling)) < 1


def test_rejection_keeps_the_distribution_when_rounds_differ_by_chance():
    """Depth and width may depend on noise of other positions: here, on the last tokens."""
    target, drafter = table(5, vocab_size=4), table(6, vocab_size=4)

    def draft(prefix, sampling):
        branching = [[1], [2, 1], [3], []][prefix[-1]]
        return draft_tree(drafter, prefix, sampling, branching)

    assert excess(sample(target, draft, Sampling()), exact_law(target, Sampling())) < 1


# The bound has teeth: what breaks the rule is seen at the same number of samples.


def test_a_drafter_that_lies_about_its_distribution_is_seen():
    target, drafter = table(3, vocab_size=4), table(4, vocab_size=4)

    def draft(prefix, sampling):
        tree, distributions = draft_tree(drafter, prefix, sampling, [1, 1])
        flat = Distribution(np.arange(4), np.full(4, 0.25))
        return tree, dict.fromkeys(distributions, flat)

    assert excess(sample(target, draft, Sampling()), exact_law(target, Sampling())) > 1.5


def test_a_strategy_that_drops_drafts_for_what_they_are_is_seen():
    target, drafter = table(3, vocab_size=4), table(4, vocab_size=4)

    def draft(prefix, sampling):
        tree, distributions = draft_tree(drafter, prefix, sampling, [1])
        return (tree, distributions) if tree.token_ids[0] % 2 else (EMPTY, {})

    assert excess(sample(target, draft, Sampling()), exact_law(target, Sampling())) > 1.5


def test_noise_that_serves_two_purposes_is_seen(monkeypatch):
    def confused(seed, position, purpose, ids):
        return uniforms(seed, position, Purpose.DRAFT, ids)

    monkeypatch.setattr("specmesh.decoding.acceptance.uniforms", confused)
    target, drafter = table(3, vocab_size=4), table(4, vocab_size=4)

    def draft(prefix, sampling):
        return draft_tree(drafter, prefix, sampling, [1, 1])

    assert excess(sample(target, draft, Sampling()), exact_law(target, Sampling())) > 1.5


def test_exact_law_sums_to_one():
    law = exact_law(table(3, vocab_size=4), Sampling())
    assert len(law) == len(list(itertools.product(range(4), repeat=NUM_TOKENS)))
    assert sum(law.values()) == pytest.approx(1)

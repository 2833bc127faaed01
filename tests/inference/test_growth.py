"""Drafts that grow level by level, and the noise by which they meet the target."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.inference.drafting import bushy, grow

from specmesh.decoding.acceptance import verify
from specmesh.decoding.drafting import confidence, draw_children
from specmesh.decoding.predict.lookahead import DraftStop
from specmesh.decoding.predict.platt import Platt
from specmesh.decoding.sampling import AcceptanceMode, Distribution, Sampling
from specmesh.decoding.trees.growth import TreeGrowth
from specmesh.decoding.trees.shape import TreeShape
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.model import Cancellation, ModelDescription
from specmesh.inference.models.context.lookup import ContextModel, RandomTokens
from specmesh.inference.service.growth import DraftShape

NEVER = Cancellation()

GREEDY = Sampling(temperature=0)
PREFIX = [int(token) for token in np.random.default_rng(3).integers(0, 60, 21)]
CHAIN = DraftShape((0,), 6)
BRANCHING = bushy((0,), 4, 3, 2)


def draft(
    model, prefix: list[int], tree: TokenTree, shape: DraftShape, sampling: Sampling
) -> tuple[list[TokenTree], dict[int, Distribution]]:
    """The tree after each level, and what all new nodes were drawn from."""
    sequence = model.open(prefix, NEVER)
    distributions: dict[int, Distribution] = {}
    levels = []
    for level in grow(sequence, tree, prefix, shape, sampling):
        levels.append(level.tree)
        distributions |= level.distributions
    return levels, distributions


@pytest.fixture
def random_model() -> ContextModel:
    description = ModelDescription("random", 50, 0, (), "", 0, "random", "")
    return ContextModel(description, RandomTokens(50))


@pytest.mark.parametrize(
    ("tree", "shape", "parents"),
    [
        (EMPTY, DraftShape((0,), 3), [[0], [1], [2]]),
        (EMPTY, bushy((0,), 1, 4), [[0, 0, 0, 0]]),
        (EMPTY, bushy((0,), 3, 2, 3), [[0, 0], [1, 1, 1, 2, 2, 2], [3, 4, 5, 6, 7, 8]]),
        (EMPTY, bushy((0,), 3, 1, 2), [[0], [1, 1], [2, 3]]),
        (TokenTree((1, 2, 3), (0, 0, 1)), DraftShape((2,), 2), [[2], [4]]),
        (
            TokenTree((1, 2, 3), (0, 0, 1)),
            bushy((3, 2), 2, 2),
            [[3, 3, 2, 2], [4, 5, 6, 7]],
        ),
        (TokenTree((1, 2), (0, 1)), DraftShape((0, 2), 2), [[0, 2], [3, 4]]),
    ],
    ids=["chain", "fan", "bushy", "late_fork", "below_a_node", "below_two", "prefix_and_leaf"],
)
def test_levels_have_the_shape_asked_for(random_model, tree, shape, parents):
    levels, _ = draft(random_model, [1, 2, 3], tree, shape, Sampling(seed=4))
    added = []
    for before, after in zip([tree, *levels], levels, strict=False):
        assert after.token_ids[: len(before)] == before.token_ids
        added.append(list(after.parents[len(before) :]))
    assert added == parents


def test_every_level_costs_one_forward_of_the_new_nodes(load):
    sequence = load().open(PREFIX, NEVER)
    computed = [
        sequence.num_computed_tokens
        for _ in grow(sequence, EMPTY, PREFIX, bushy((0,), 3, 2, 2), GREEDY)
    ]
    assert computed == [21, 21 + 2, 21 + 2 + 4]


def test_level_is_there_before_the_next_forward(load):
    sequence = load().open(PREFIX, NEVER)
    levels = grow(sequence, EMPTY, PREFIX, CHAIN, GREEDY)
    assert len(next(levels).tree) == 1
    assert sequence.num_computed_tokens == 21
    levels.close()


def test_children_are_cut_to_what_sampling_leaves(load):
    levels, _ = draft(load(), PREFIX, EMPTY, bushy((0,), 1, 5), Sampling(top_k=2, seed=1))
    assert len(levels[0]) == 2


def test_distributions_come_with_rejection_mode_alone(load):
    model = load()
    shape = bushy((0,), 2, 2)
    for sampling in (GREEDY, Sampling(seed=1)):
        assert draft(model, PREFIX, EMPTY, shape, sampling)[1] == {}
    rejection = Sampling(seed=1, mode=AcceptanceMode.REJECTION)
    assert set(draft(model, PREFIX, EMPTY, shape, rejection)[1]) == {0, 1, 2}


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "qwen2"])
@pytest.mark.parametrize("shape", [CHAIN, BRANCHING], ids=["chain", "branching"])
@pytest.mark.parametrize(
    "sampling",
    [
        GREEDY,
        *(Sampling(seed=seed) for seed in range(4)),
        Sampling(temperature=3, top_k=20, top_p=0.9, seed=7),
        *(Sampling(seed=seed, mode=AcceptanceMode.REJECTION) for seed in range(4)),
        Sampling(temperature=2, top_p=0.9, seed=5, mode=AcceptanceMode.REJECTION),
    ],
    ids=lambda sampling: f"{sampling.mode.name.lower()}-{sampling.temperature:g}-{sampling.seed}",
)
def test_target_accepts_all_that_it_drafted_itself(load, architecture, shape, sampling):
    levels, distributions = draft(load(architecture), PREFIX, EMPTY, shape, sampling)
    tree = levels[-1]
    verdict = verify(
        tree,
        load(architecture).open(PREFIX, NEVER).score(tree),
        sampling,
        len(PREFIX),
        distributions,
    )
    assert len(verdict.accepted_nodes) == shape.depth
    assert not verdict.recovered
    first_children = [
        node for node in verdict.accepted_nodes if node == tree.children(tree.parents[node - 1])[0]
    ]
    assert tuple(first_children) == verdict.accepted_nodes


@pytest.mark.parametrize("mode", [AcceptanceMode.GREEDY, AcceptanceMode.COUPLED])
def test_draft_that_goes_on_from_nodes_joins_the_targets_own_text(load, mode):
    """Below a tree, positions of the noise count the nodes above, wherever they are listed."""
    model = load()
    sampling = Sampling(seed=11, mode=mode)
    begun = draft(model, PREFIX, EMPTY, bushy((0,), 3, 2), sampling)[0][-1]
    leaves = tuple(node for node in range(1, len(begun) + 1) if not begun.children(node))
    grown = draft(model, PREFIX, begun, bushy(leaves[::-1], 3, 1, 2), sampling)[0][-1]
    verdict = verify(grown, model.open(PREFIX, NEVER).score(grown), sampling, len(PREFIX))
    assert len(verdict.accepted_nodes) == 6
    assert not verdict.recovered

    at_once = draft(model, PREFIX, EMPTY, CHAIN, sampling)[0][-1]
    assert grown.tokens_on(verdict.accepted_nodes) == at_once.token_ids


@pytest.mark.parametrize("mode", [AcceptanceMode.GREEDY, AcceptanceMode.COUPLED])
def test_draft_from_a_longer_prefix_says_the_same(load, mode):
    """What is committed moves from the tree to the prefix, and the noise stays where it was."""
    sampling = Sampling(seed=12, mode=mode)
    whole = draft(load(), PREFIX, EMPTY, CHAIN, sampling)[0][-1].token_ids
    rest = draft(load(), [*PREFIX, *whole[:2]], EMPTY, DraftShape((0,), 4), sampling)[0][-1]
    assert rest.token_ids == whole[2:]


SAMPLINGS = [GREEDY, Sampling(seed=12), Sampling(seed=12, mode=AcceptanceMode.REJECTION)]


def chances(load, shape: DraftShape, sampling: Sampling, acceptance: Platt) -> list[float]:
    """By level of a draft that isn't stopped: how likely the likeliest of its paths stands."""
    sequence, chance, best = load().open(PREFIX, NEVER), {0: 1.0}, []
    told = replace(shape, num_choices=9)
    for level in grow(sequence, EMPTY, PREFIX, told, sampling):
        first = len(chance)
        for node in range(first, len(level.tree) + 1):
            parent, token = level.tree.parents[node - 1], level.tree.token_ids[node - 1]
            law, choices = level.distributions.get(parent), level.choices[parent]
            chance[node] = chance[parent] * acceptance(confidence(token, choices, law))
        best.append(max(chance[node] for node in range(first, len(level.tree) + 1)))
    return best


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda sampling: sampling.mode.name)
@pytest.mark.parametrize("shape", [CHAIN, BRANCHING], ids=["chain", "tree"])
@pytest.mark.parametrize("num_choices", [0, 1])
@pytest.mark.parametrize("last", [1, 2, 3])
def test_draft_ends_after_the_level_whose_every_path_is_too_unlikely(
    load, shape, sampling, num_choices, last
):
    acceptance = Platt(0.8, 0.3)
    best = chances(load, shape, sampling, acceptance)
    stop = DraftStop((best[last - 1] + best[last]) / 2, acceptance)
    stopped = replace(shape, num_choices=num_choices, stop=stop)
    whole, _ = draft(load(), PREFIX, EMPTY, shape, sampling)
    levels, _ = draft(load(), PREFIX, EMPTY, stopped, sampling)
    assert levels == whole[: last + 1]


@pytest.mark.parametrize(("below", "num_levels"), [(0.0, 6), (1.0, 1)])
def test_draft_has_a_level_at_least_and_may_never_stop(load, below, num_levels):
    shape = replace(CHAIN, stop=DraftStop(below, Platt()))
    assert len(draft(load(), PREFIX, EMPTY, shape, GREEDY)[0]) == num_levels


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda sampling: sampling.mode.name)
def test_a_tree_grows_by_worth_and_the_target_accepts_what_it_drafted_itself(load, sampling):
    """Every path of it is one of the tree of all children, and the first path is the chain."""
    model, growth = load(), TreeGrowth(12, 0.01)
    stop = DraftStop(0.0, Platt(0.8, 0.3))
    shape = DraftShape((0,), 4, num_choices=2, stop=stop, growth=growth)
    assert shape.num_nodes == 12
    levels = list(grow(model.open(PREFIX, NEVER), EMPTY, PREFIX, shape, sampling))
    tree = levels[-1].tree
    assert len(tree) <= 12
    assert any(len(tree.children(node)) > 1 for node in range(len(tree) + 1))

    distributions = {n: each for level in levels for n, each in level.distributions.items()}
    parents = {parent for parent in range(len(tree) + 1) if tree.children(parent)}
    in_rejection_mode = sampling.mode is AcceptanceMode.REJECTION
    assert set(distributions) == (parents if in_rejection_mode else set())
    choices = {n: each for level in levels for n, each in level.choices.items()}
    assert set(choices) == parents
    for node, told in choices.items():
        assert len(told.token_ids) == min(2, len(tree.children(node)))
        if not in_rejection_mode:
            assert tree.tokens_on(tree.children(node))[:2] == told.token_ids

    (chain, *_), _ = draft(model, PREFIX, EMPTY, DraftShape((0,), 1), sampling)
    assert tree.token_ids[0] == chain.token_ids[0]
    logits = load().open(PREFIX, NEVER).score(tree)
    verdict = verify(tree, logits, sampling, len(PREFIX), distributions)
    assert verdict.accepted_nodes
    assert tree.children(verdict.accepted_nodes[-1]) == ()


def test_a_tree_grows_below_nodes_that_are_given(load):
    given = TokenTree((1, 2, 3), (0, 0, 1))
    stop, growth = DraftStop(0.0, Platt()), TreeGrowth(5, 0.0)
    shape = DraftShape((3, 2), 2, stop=stop, growth=growth)
    levels = list(grow(load().open(PREFIX, NEVER), given, PREFIX, shape, GREEDY))
    tree = levels[-1].tree
    assert len(tree) == 3 + 5
    assert set(tree.parents[3:]) <= {2, 3}


FIXED = TreeShape((3, 2, 0, 1, 0, 2))
"""Nodes 1 to 3 at the top, 4 and 5 below 1, 6 below 3, and two below 5."""


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda sampling: sampling.mode.name)
def test_a_tree_of_a_fixed_shape_has_the_first_choices_of_each_node(load, sampling):
    shape = DraftShape((0,), 8, num_choices=1, fixed=FIXED)
    assert shape.num_nodes == 8
    levels = list(grow(load().open(PREFIX, NEVER), EMPTY, PREFIX, shape, sampling))
    tree = levels[-1].tree
    assert tree.parents == (0, 0, 0, 1, 1, 3, 5, 5)
    assert [len(level.tree) for level in levels] == [3, 6, 8]
    asked = {parent for level in levels for parent in level.choices}
    assert asked == {0, 1, 3, 5}
    logits = load().open(PREFIX, NEVER).score(tree)
    for node in asked:
        children = tree.children(node)
        position = len(PREFIX) + tree.depth(node)
        drawn = draw_children(logits[node], sampling, position, len(children))
        assert tree.tokens_on(children) == drawn.children


def test_a_fixed_shape_is_cut_to_the_depth_and_hangs_from_each_node_given(load):
    given = TokenTree((1, 2, 3), (0, 0, 1))
    shape = DraftShape((3, 2), 2, fixed=FIXED)
    assert shape.num_nodes == 16
    levels = list(grow(load().open(PREFIX, NEVER), given, PREFIX, shape, GREEDY))
    assert levels[-1].tree.parents[3:] == (3, 3, 3, 2, 2, 2, 4, 4, 6, 7, 7, 9)


def test_children_that_there_are_no_choices_for_are_missing(load):
    """And what would hang from them; the shape's other nodes keep their places."""
    sampling = Sampling(top_k=2, seed=3)
    fixed = TreeShape((3, 1, 2, 3))
    shape = DraftShape((0,), 3, fixed=fixed)
    levels = list(grow(load().open(PREFIX, NEVER), EMPTY, PREFIX, shape, sampling))
    assert levels[-1].tree.parents == (0, 0, 1, 2, 2)


def test_stop_tells_no_more_choices_than_were_asked_for(load):
    stop = DraftStop(0.0, Platt())
    for num_choices in (0, 2):
        shape = replace(BRANCHING, num_choices=num_choices, stop=stop)
        plain = replace(shape, stop=None)
        levels = list(grow(load().open(PREFIX, NEVER), EMPTY, PREFIX, shape, GREEDY))
        same = list(grow(load().open(PREFIX, NEVER), EMPTY, PREFIX, plain, GREEDY))
        assert [level.choices for level in levels] == [level.choices for level in same]

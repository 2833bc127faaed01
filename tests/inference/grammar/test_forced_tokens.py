"""Tokens that a grammar forces: they are drafted without a forward pass, and change no draft."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.inference.drafting import bushy
from tests.inference.grammar.vocabularies import Small, tokens_in

from specmesh.decoding.drafting import TopK, draw_children, forced_child
from specmesh.decoding.grammar import Grammar, GrammarKind
from specmesh.decoding.predict.lookahead import DraftStop
from specmesh.decoding.predict.platt import Platt
from specmesh.decoding.processing.masks import only_one
from specmesh.decoding.processing.processor import LogitProcessor
from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.decoding.trees.growth import TreeGrowth
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.grammar.answer_mask import AnswerMask
from specmesh.inference.grammar.states import RecentStates
from specmesh.inference.service.growth import DraftShape, GrowingDraft

pytestmark = pytest.mark.usefixtures("patient_drafts")

VOCAB = 40
PREFIX = [1, 2, 3]
SAMPLINGS = [
    Sampling(temperature=0),
    Sampling(seed=4),
    Sampling(seed=5, mode=AcceptanceMode.REJECTION),
    Sampling(temperature=2, top_k=3, seed=6, mode=AcceptanceMode.REJECTION),
    Sampling(seed=7, logit_bias=((8, 3.0),), repetition_penalty=1.5, banned_token_ids=(9,)),
]
CHAIN = DraftShape((0,), 9)
STOP = DraftStop(0.2, Platt(0.6, 0.3))
SHAPES = [
    CHAIN,
    replace(CHAIN, num_choices=3),
    replace(CHAIN, stop=STOP, vocab_size=30),
    bushy((0,), 5, 2, 1, 2, num_choices=2),
    replace(CHAIN, stop=STOP, num_choices=2, growth=TreeGrowth(8, 0.02)),
]


class Runs:
    """Forces a token behind as many tokens as ``lengths`` holds, and allows half of all elsewhere,
    by the tokens before."""

    def __init__(self, *lengths: int) -> None:
        self.lengths = lengths

    def allowed(self, path):
        rng = np.random.default_rng([len(path), *path])
        allowed = rng.random(VOCAB) < 0.5
        if len(path) in self.lengths:
            allowed[:] = False
        allowed[rng.integers(VOCAB)] = True
        return np.packbits(allowed, bitorder="little")


def row_behind(path) -> np.ndarray:
    return np.random.default_rng([77, *path]).standard_normal(VOCAB).astype(np.float32)


def drafted(mask, sampling, shape, *, tree=EMPTY, forced=True):
    """The levels of a draft, and the numbers of nodes that its forward passes had."""
    # A grammar, so that there is something to process.
    sampling = replace(sampling, grammar=Grammar(GrammarKind.REGEX, "a"))
    growth = GrowingDraft(tree, shape, sampling, LogitProcessor(sampling, PREFIX, mask))
    levels, forwards, scored = [], [], 0
    while not growth.ended:
        level = growth.grow_forced() if forced else None
        if level is None:
            nodes = range(scored, len(growth.tree) + 1)
            paths = [growth.tree.tokens_on(growth.tree.path(node)) for node in nodes]
            forwards.append(len(nodes))
            scored = len(growth.tree) + 1
            level = growth.grow(np.array([row_behind(path) for path in paths]))
        levels.append(level)
    return levels, forwards, growth


def rounded(choices: TopK | None) -> TopK | None:
    """The entropy of a single token is 0 but for rounding."""
    return choices and replace(choices, entropy=round(choices.entropy, 12))


def told(levels):
    return [
        (
            level.tree,
            {
                node: (each.token_ids.tolist(), each.probabilities.tolist())
                for node, each in level.distributions.items()
            },
            {node: rounded(choices) for node, choices in level.choices.items()},
        )
        for level in levels
    ]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=range(len(SAMPLINGS)))
@pytest.mark.parametrize("shape", SHAPES, ids=range(len(SHAPES)))
@pytest.mark.parametrize(
    "lengths",
    [(), (0, 1, 2), (3, 4), (1, 5, 6, 7, 8), tuple(range(9))],
    ids=["none", "begin", "middle", "limit", "all"],
)
def test_a_draft_is_the_same_with_and_without_forward_passes_for_forced_tokens(
    sampling, shape, lengths
):
    levels, forwards, _ = drafted(Runs(*lengths), sampling, shape)
    expected, of_each, _ = drafted(Runs(*lengths), sampling, shape, forced=False)
    assert told(levels) == told(expected)
    assert len(forwards) <= len(of_each)


def test_a_forced_run_costs_no_forward_pass_and_goes_through_the_next_as_a_chain():
    levels, forwards, _ = drafted(Runs(0, 1, 4, 5, 8), SAMPLINGS[0], CHAIN)
    assert len(levels) == 9
    assert forwards == [3, 1, 3, 1]  # behind 2, 3, 6 and 7 tokens; nobody reads the last two


def test_an_answer_that_is_all_forced_is_drafted_without_the_model():
    levels, forwards, growth = drafted(Runs(*range(9)), SAMPLINGS[2], CHAIN)
    assert (len(levels), forwards) == (9, [])
    assert growth.likeliest_scored == ()


def test_the_path_to_keep_ends_where_forward_passes_have_ended():
    _, _, growth = drafted(Runs(0, 1, 7, 8), SAMPLINGS[0], CHAIN)
    assert growth.likeliest_scored == (1, 2, 3, 4, 5, 6)
    tree = TokenTree((5, 6, 7), (0, 0, 1))
    _, _, growth = drafted(Runs(), SAMPLINGS[0], replace(CHAIN, from_nodes=(3,)), tree=tree)
    assert growth.likeliest_scored == (1, 3, *range(4, 12))


class ForcedBehind(Runs):
    """Forces every token behind one of ``firsts``, and allows these alone at the beginning."""

    def __init__(self, *firsts: int) -> None:
        self.firsts = firsts

    def allowed(self, path):
        if not path:
            return np.packbits(np.isin(np.arange(VOCAB), (5, 6)), bitorder="little")
        return Runs(len(path) if path[0] in self.firsts else -1).allowed(path)


@pytest.mark.parametrize(("firsts", "expected"), [((5,), [1, 2, 2, 2]), ((5, 6), [1])])
def test_a_level_needs_no_forward_pass_only_if_all_its_tokens_are_forced(firsts, expected):
    shape, sampling = bushy((0,), 4, 2), SAMPLINGS[1]
    levels, forwards, _ = drafted(ForcedBehind(*firsts), sampling, shape)
    assert sorted(levels[0].tree.token_ids) == [5, 6]
    assert forwards == expected
    assert told(levels) == told(drafted(ForcedBehind(*firsts), sampling, shape, forced=False)[0])


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=range(len(SAMPLINGS)))
@pytest.mark.parametrize(("num_children", "num_choices"), [(1, 0), (1, 3), (4, 2)])
def test_a_forced_child_is_what_logits_that_leave_one_token_give(
    sampling, num_children, num_choices
):
    for token in (0, 17, VOCAB - 1):
        logits = np.full(VOCAB, -np.inf, np.float32)
        logits[token] = 2.5
        drawn = draw_children(logits, sampling, 12, num_children, num_choices)
        forced = forced_child(token, sampling, num_choices)
        assert drawn.children == forced.children
        assert rounded(drawn.choices) == forced.choices
        assert (drawn.distribution is None) == (forced.distribution is None)
        if drawn.distribution is not None and forced.distribution is not None:
            assert drawn.distribution.token_ids.tolist() == forced.distribution.token_ids.tolist()
            assert drawn.distribution.probabilities.tolist() == [1.0]
            assert forced.distribution.probabilities.tolist() == [1.0]


def test_a_token_is_forced_where_just_one_is_allowed():
    for size in (8, 40, 161):
        for token in (0, 7, size // 2, size - 1):
            allowed = np.zeros(size, bool)
            assert only_one(np.packbits(allowed, bitorder="little")) is None
            allowed[token] = True
            assert only_one(np.packbits(allowed, bitorder="little")) == token
            for other in {1, size - 2} - {token}:
                two = allowed.copy()
                two[other] = True
                assert only_one(np.packbits(two, bitorder="little")) is None


def test_without_a_grammar_nothing_is_forced():
    assert LogitProcessor(Sampling(banned_token_ids=(1,)), PREFIX).forced((4,)) is None


def test_a_ban_does_not_change_what_is_forced():
    mask = Runs(0)
    token = only_one(mask.allowed(()))
    assert token is not None
    sampling = Sampling(banned_token_ids=(token,), grammar=Grammar(GrammarKind.REGEX, "a"))
    processor = LogitProcessor(sampling, PREFIX, mask)
    assert processor.forced() == token == int(processor.row(row_behind(())).argmax())


@pytest.fixture
def small():
    return Small("name", "na", '":', '{"')


def test_the_engines_masks_force_what_trying_everything_leaves(small):
    texts = [b'{"name":1}', b'{"name":2}', b'{"nest":1}']
    compiled = small.vocabulary.compile(Grammar.of_choices([text.decode() for text in texts]))
    mask = AnswerMask(compiled, RecentStates(), [])
    pending, forced = [()], 0
    while pending:
        path = pending.pop()
        expected = small.expected(texts, path)
        bits = mask.allowed(path)
        assert tokens_in(bits) == expected
        assert mask.allowed(path) is bits  # found once
        assert (only_one(bits) is not None) == (len(expected) == 1)
        forced += len(expected) == 1
        pending += [(*path, token) for token in expected - {small.end}]
    assert forced > 10


def test_a_schema_forces_the_last_letters_of_its_names(small):
    schema = {"type": "object", "properties": {"name": {"const": 1}}, "required": ["name"]}
    schema = {**schema, "additionalProperties": False}
    compiled = small.vocabulary.compile(Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema)))
    begun = [small.texts.index(each) for each in (b"{", b'"', b"n")]
    sampling = Sampling(temperature=0, num_prompt_tokens=2, grammar=Grammar.of_choices(["a"]))
    mask = AnswerMask(compiled, RecentStates(), begun)
    processor = LogitProcessor(sampling, [0, 0, *begun], mask)
    growth = GrowingDraft(EMPTY, DraftShape((0,), 9), sampling, processor)
    while growth.grow_forced() is not None:
        assert not growth.ended
    assert small.text(growth.tree.token_ids) == b"ame"  # a quote comes alone or with a colon

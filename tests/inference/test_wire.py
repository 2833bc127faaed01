"""What goes over the wire comes back the same."""

from __future__ import annotations

import random
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.decoding.test_tree_shape import any_paths

from specmesh.decoding.drafting import TopK, draw_children
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.predict.lookahead import DraftStop
from specmesh.decoding.predict.platt import MAX_BIAS, MAX_SLOPE, Platt
from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.decoding.trees.growth import TreeGrowth
from specmesh.decoding.trees.shape import TreeShape
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.mesh.v1alpha1 import drafter_pb2, tokens_pb2
from specmesh.serving.codec.draft_rules import (
    read_growth,
    read_stop,
    read_tree_shape,
    write_growth,
    write_stop,
    write_tree_shape,
)
from specmesh.serving.codec.wire import (
    check_tokens,
    read_choices,
    read_distributions,
    read_sampling,
    read_tree,
    write_choices,
    write_distributions,
    write_sampling,
    write_tree,
)
from specmesh.v1 import sampling_pb2

IDS = st.integers(0, 2**32 - 1)

samplings = st.builds(
    Sampling,
    temperature=st.floats(0, 100),
    top_k=st.integers(0, 2**32 - 1),
    top_p=st.floats(0.001, 1),
    seed=st.integers(0, 2**64 - 1),
    mode=st.sampled_from(AcceptanceMode),
    min_p=st.floats(0, 1),
    typical_p=st.floats(0.001, 1),
    repetition_penalty=st.floats(0.01, 100),
    presence_penalty=st.floats(-2, 2),
    frequency_penalty=st.floats(-2, 2),
    logit_bias=st.dictionaries(IDS, st.floats(-100, 100, width=32), max_size=4).map(
        lambda bias: tuple(sorted(bias.items()))
    ),
    allowed_token_ids=st.lists(IDS, max_size=4).map(tuple),
    banned_token_ids=st.lists(IDS, max_size=4).map(tuple),
    banned_sequences=st.lists(st.lists(IDS, min_size=1, max_size=4).map(tuple), max_size=4).map(
        tuple
    ),
    min_tokens=IDS,
    end_token_ids=st.lists(IDS, max_size=4).map(tuple),
    num_prompt_tokens=IDS,
)


def over_the_wire(message):
    return type(message).FromString(message.SerializeToString())


@given(sampling=samplings)
def test_sampling_comes_back_the_same(sampling):
    assert read_sampling(over_the_wire(write_sampling(sampling))) == sampling


@given(st.integers(1, 1024), st.floats(0, 1, width=32))
def test_growth_comes_back_the_same(max_nodes, least_worth):
    growth = TreeGrowth(max_nodes, least_worth)
    assert read_growth(over_the_wire(write_growth(growth)), 1024) == growth


@given(st.integers(0, 2**32), st.integers(1, 64))
def test_a_tree_shape_comes_back_the_same(seed, size):
    shape = TreeShape.of(any_paths(random.Random(seed), size))
    assert read_tree_shape(over_the_wire(write_tree_shape(shape)), size) == shape


def test_unset_sampling_takes_the_documented_defaults():
    assert read_sampling(sampling_pb2.SamplingParameters(), seed=9) == Sampling(
        temperature=1, top_k=0, top_p=1, seed=9, mode=AcceptanceMode.COUPLED
    )


def test_every_field_of_sampling_is_one_of_the_protocol():
    ours = {each.name for each in fields(Sampling)} - {"mode"} | {"acceptance_mode"}
    of_callers = {"bad_words"}  # the orchestrator turns them into sequences
    known = {each.name for each in sampling_pb2.SamplingParameters.DESCRIPTOR.fields}
    assert ours == known - of_callers


def test_a_parameter_that_is_not_used_is_not_sent_so_that_older_replicas_take_the_call():
    sent = write_sampling(Sampling(temperature=0.5, seed=0)).ListFields()
    assert {field.name for field, _ in sent} == {"temperature", "seed", "acceptance_mode"}


def test_own_seed_goes_before_the_stand_in_even_if_0():
    assert read_sampling(sampling_pb2.SamplingParameters(seed=0), seed=9).seed == 0


def test_greedy_needs_no_seed():
    message = sampling_pb2.SamplingParameters(temperature=0)
    assert read_sampling(message).mode is AcceptanceMode.GREEDY


@st.composite
def trees(draw) -> TokenTree:
    tree = EMPTY
    for token in draw(st.lists(st.integers(0, 2**32 - 1), max_size=20, unique=True)):
        tree = tree.extend([token], [draw(st.integers(0, len(tree)))])
    return tree


@given(tree=trees())
def test_tree_comes_back_the_same(tree):
    message = over_the_wire(write_tree(tree))
    assert read_tree(message, vocab_size=2**32) == tree
    assert not message.draft_distributions


@given(
    logits=st.dictionaries(
        st.integers(0, 9), st.lists(st.floats(-30, 30), min_size=1, max_size=100), max_size=4
    )
)
def test_distributions_come_back_as_the_very_numbers_drawn_from(logits):
    sampling = Sampling(mode=AcceptanceMode.REJECTION)
    sent = {
        node: draw_children(np.array(row), sampling, node, 1).distribution
        for node, row in logits.items()
    }
    received = read_distributions([over_the_wire(m) for m in write_distributions(sent)])
    assert received.keys() == sent.keys()
    for node, distribution in sent.items():
        assert np.array_equal(received[node].token_ids, distribution.token_ids)
        assert np.array_equal(received[node].probabilities, distribution.probabilities)


def test_probabilities_are_divided_by_their_sum():
    message = tokens_pb2.DraftDistribution(node=3, token_ids=[5, 1], probabilities=[3, 1])
    received = read_distributions([message])
    assert received[3].probabilities.tolist() == [0.75, 0.25]


def choices(token_ids, probabilities, node=2):
    return tokens_pb2.DraftDistribution(node=node, token_ids=token_ids, probabilities=probabilities)


def test_choices_come_back_in_their_order_and_undivided():
    sent = {
        3: TopK((7, 1), (0.5, 0.25), 1.25),
        0: TopK((2,), (1.0,), 0.0),
    }
    messages = [over_the_wire(message) for message in write_choices(sent)]
    received = read_choices(messages, [1.25, 0.0], vocab_size=8)
    assert list(received) == [3, 0]
    assert received == sent


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (choices([], []), "choices[1].token_ids"),
        (choices([1, 1], [0.5, 0.5]), "choices[1].token_ids"),
        (choices([1, 2], [0.5]), "choices[1].probabilities"),
        (choices([1], [0.5, 0.5]), "choices[1].probabilities"),
        (choices([1, 2], [0.5, 0]), "choices[1].probabilities"),
        (choices([1, 2], [0.25, 0.5]), "choices[1].probabilities"),
        (choices([1, 2], [0.75, 0.5]), "choices[1].probabilities"),
        (choices([1], [1.5]), "choices[1].probabilities"),
        (choices([1], [np.nan]), "choices[1].probabilities"),
        (choices([3, 8], [0.5, 0.5]), "choices[1].token_ids[1]"),
    ],
)
@pytest.mark.parametrize("entropies", [[], [0.0, 0.5]], ids=["none told", "told"])
def test_choices_that_make_no_sense_are_refused(message, field, entropies):
    with pytest.raises(InvalidField) as refusal:
        read_choices([choices([1], [1]), message], entropies, vocab_size=8)
    assert refusal.value.field == field


@pytest.mark.parametrize(
    ("entropies", "field"),
    [
        ([0.5], "entropies"),
        ([0.5, 0.5, 0.5], "entropies"),
        ([0.5, -0.1], "entropies[1]"),
        ([0.5, np.inf], "entropies[1]"),
        ([0.5, np.nan], "entropies[1]"),
    ],
)
def test_entropies_that_make_no_sense_are_refused(entropies, field):
    with pytest.raises(InvalidField) as refusal:
        read_choices([choices([1], [0.5]), choices([2], [0.5])], entropies, vocab_size=8)
    assert refusal.value.field == field


def test_entropies_that_were_not_told_are_taken_to_be_as_high_as_can_be():
    received = read_choices([choices([7, 1], [0.5, 0.25])], [], vocab_size=8)
    spread = np.array([0.5, 0.25, *[0.25 / 6] * 6])
    assert received[2].entropy == pytest.approx(-(spread @ np.log(spread)))


def test_token_outside_the_vocabulary_is_named_with_its_place():
    check_tokens("field", [], 5)
    check_tokens("field", [4], 5)
    with pytest.raises(InvalidField, match="5 is outside the vocabulary of 5") as refusal:
        check_tokens("field", [0, 4, 5, 9], 5)
    assert refusal.value.field == "field[2]"


@given(
    below=st.floats(0, 1, width=32),
    slope=st.floats(0, MAX_SLOPE, width=32),
    bias=st.floats(-MAX_BIAS, MAX_BIAS, width=32),
)
def test_stop_comes_back_the_same(below, slope, bias):
    stop = DraftStop(below, Platt(slope, bias))
    assert read_stop(over_the_wire(write_stop(stop))) == stop


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"below": -0.1}, "below"),
        ({"below": 1.1}, "below"),
        ({"below": np.nan}, "below"),
        ({"slope": -1}, "slope"),
        ({"slope": 101}, "slope"),
        ({"slope": np.nan}, "slope"),
        ({"bias": -101}, "bias"),
        ({"bias": np.inf}, "bias"),
    ],
)
def test_stop_that_makes_no_sense_is_refused(fields, name):
    with pytest.raises(InvalidField) as refusal:
        read_stop(drafter_pb2.DraftStop(**fields))
    assert refusal.value.field == f"stop.{name}"

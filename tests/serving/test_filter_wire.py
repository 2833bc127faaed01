"""What the confidence service is asked comes over the wire the same, or is refused by name."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmesh.client.requests.speculation import Filter, filter_options
from specmesh.decoding.drafting import TopK, draw_children
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.predict.confidence import CALIBRATED, SCORERS
from specmesh.decoding.predict.thresholds import Constant, EscalationRate, FilterOptions, FollowLoad
from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.mesh.v1alpha1 import confidence_pb2
from specmesh.serving.codec.filter_options import read_filter_options, write_filter_options
from specmesh.serving.codec.wire import (
    MAX_POSITIONS,
    read_positions,
    write_position,
)
from specmesh.v1 import speculation_pb2

SHARES = st.floats(0, 1, width=32)
RULES = st.one_of(
    st.tuples(st.just({}), st.none()),
    st.floats(allow_nan=False, width=32).map(lambda c: ({"threshold": c}, Constant(c))),
    SHARES.map(lambda share: ({"escalation_rate": share}, EscalationRate(share))),
    st.tuples(SHARES, SHARES)
    .map(sorted)
    .map(lambda bounds: ({"follow_load": tuple(bounds)}, FollowLoad(*bounds))),
)
"""What a client says, and what the service is to do."""


def over_the_wire(message):
    return type(message).FromString(message.SerializeToString())


@given(
    seed=st.integers(0, 2**32),
    heat=st.floats(0.001, 100),
    mode=st.sampled_from(AcceptanceMode),
    listed=st.integers(1, 16),
)
def test_whatever_a_drafter_thinks_can_be_sent(seed, heat, mode, listed):
    row = (np.random.default_rng(seed).normal(size=50) * heat).astype(np.float32)
    sampling = Sampling(seed=seed, mode=mode)
    sent = [draw_children(row, sampling, n, 1, listed).choices for n in range(3)]
    received = read_positions([over_the_wire(write_position(choices)) for choices in sent])
    for before, after in zip(sent, received, strict=True):
        assert after.token_ids == before.token_ids
        assert after.probabilities == pytest.approx(before.probabilities, rel=1e-6)
        assert after.entropy == pytest.approx(before.entropy, rel=1e-6, abs=1e-40)


GOOD = write_position(TopK((1, 2), (0.5, 0.25), 1.0))


def place(token_ids, probabilities, entropy=1.0):
    return confidence_pb2.DraftPosition(
        token_ids=token_ids, probabilities=probabilities, entropy=entropy
    )


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (place([], []), "token_ids"),
        (place([1, 1], [0.5, 0.25]), "token_ids"),
        (place([1, 2], [0.5]), "probabilities"),
        (place([1], [0.5, 0.25]), "probabilities"),
        (place([1], []), "probabilities"),
        (place([1, 2], [0.25, 0.5]), "probabilities"),
        (place([1, 2], [0.75, 0.5]), "probabilities"),
        (place([1, 2], [0.5, 0.0]), "probabilities"),
        (place([1], [1.5]), "probabilities"),
        (place([1], [math.nan]), "probabilities"),
        (place([1], [0.5], -0.5), "entropy"),
        (place([1], [0.5], math.inf), "entropy"),
        (place([1], [0.5], math.nan), "entropy"),
    ],
)
def test_places_that_make_no_sense_are_refused_by_number(message, field):
    with pytest.raises(InvalidField) as refusal:
        read_positions([GOOD, GOOD, GOOD, message])
    assert refusal.value.field == f"positions[3].{field}"


def test_float32_probabilities_may_miss_1_by_a_rounding_error():
    even = place(range(7), np.full(7, 1 / 7, np.float32).tolist(), math.log(7))
    assert sum(even.probabilities) > 1
    (received,) = read_positions([even])
    assert len(received.probabilities) == 7


@pytest.mark.parametrize("count", [0, MAX_POSITIONS + 1])
def test_no_places_or_too_many_are_refused(count):
    with pytest.raises(InvalidField) as refusal:
        read_positions([GOOD] * count)
    assert refusal.value.field == "positions"


def test_as_many_places_as_are_allowed_are_read():
    assert len(read_positions([GOOD] * MAX_POSITIONS)) == MAX_POSITIONS


@given(scorer=st.sampled_from(["", *SCORERS, CALIBRATED]), said_and_meant=RULES)
def test_options_are_read_as_the_client_means_them(scorer, said_and_meant):
    said, meant = said_and_meant
    message = over_the_wire(filter_options(Filter(scorer, **said)))
    assert read_filter_options(message) == FilterOptions(scorer or None, meant)
    assert write_filter_options(FilterOptions(scorer or None, meant)) == message


def test_unset_options_leave_it_to_the_service():
    assert read_filter_options(speculation_pb2.FilterOptions()) == FilterOptions(None, None)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"scorer": "perplexity"}, "scorer"),
        ({"threshold": math.nan}, "threshold"),
        ({"escalation_rate": -0.5}, "escalation_rate"),
        ({"escalation_rate": 1.5}, "escalation_rate"),
        ({"escalation_rate": math.nan}, "escalation_rate"),
        ({"follow_load": {"lowest": -0.5, "highest": 0.5}}, "follow_load.lowest"),
        ({"follow_load": {"lowest": 0.5, "highest": 1.5}}, "follow_load.highest"),
        ({"follow_load": {"lowest": 0.75, "highest": 0.5}}, "follow_load.lowest"),
        ({"follow_load": {"lowest": 0.5, "highest": math.nan}}, "follow_load.highest"),
    ],
)
@pytest.mark.parametrize("prefix", ["options", "speculation.filter"])
def test_options_that_make_no_sense_are_refused_as_the_caller_spelt_them(message, field, prefix):
    with pytest.raises(InvalidField) as refusal:
        read_filter_options(speculation_pb2.FilterOptions(**message), prefix)
    assert refusal.value.field == f"{prefix}.{field}"

"""Target and drafter made of a hash."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.simulated.hashed import SimulatedDrafter, SimulatedTarget

NUM_CONTEXTS = 4_000
TARGET = SimulatedTarget(seed=3, vocab_size=50)
CONTEXTS = [
    TARGET.after(TARGET.start, tokens)
    for tokens in np.random.default_rng(1).integers(0, 50, (NUM_CONTEXTS, 4)).tolist()
]
contexts = st.lists(st.integers(0, 2**32 - 1), max_size=30)


def is_near(found, expected, num_trials=NUM_CONTEXTS):
    return abs(found - expected) <= 5 * math.sqrt(expected * (1 - expected) / num_trials)


def test_numbers_never_change():
    """Services and simulators of different versions and machines must agree."""
    target = SimulatedTarget(seed=7, vocab_size=1000)
    state = target.after(target.start, [1, 2, 3])
    drafter = SimulatedDrafter(target, acceptance=0.5, salt=2)
    assert (state, target.token(state)) == (14956166992556233507, 862)
    assert drafter.choices(state) == (862, 528)


@given(contexts, contexts)
def test_state_depends_on_the_context_however_it_came(first, second):
    assert TARGET.after(TARGET.after(TARGET.start, first), second) == TARGET.after(
        TARGET.start, [*first, *second]
    )


@given(contexts.filter(bool), st.data())
def test_a_lost_or_swapped_token_changes_all_that_follows(tokens, data):
    at = data.draw(st.integers(0, len(tokens) - 1))
    whole = TARGET.after(TARGET.start, tokens)
    assert TARGET.after(TARGET.start, tokens[:at] + tokens[at + 1 :]) != whole
    if at and tokens[at] != tokens[at - 1]:
        swapped = [*tokens[: at - 1], tokens[at], tokens[at - 1], *tokens[at + 1 :]]
        assert TARGET.after(TARGET.start, swapped) != whole


def test_target_says_every_token_alike():
    counts = np.bincount([TARGET.token(state) for state in CONTEXTS], minlength=50)
    expected = NUM_CONTEXTS / 50
    # 49 degrees of freedom: above 100 once in 40,000 seeds.
    assert ((counts - expected) ** 2 / expected).sum() < 100


def test_targets_of_different_seeds_say_different_things():
    other = SimulatedTarget(seed=4, vocab_size=50)
    tokens = [range(length) for length in range(NUM_CONTEXTS // 10)]
    same = [
        TARGET.token(TARGET.after(TARGET.start, context))
        == other.token(other.after(other.start, context))
        for context in tokens
    ]
    assert is_near(np.mean(same), 1 / 50, len(same))


@pytest.mark.parametrize("acceptance", [0.0, 0.25, 0.8, 1.0])
@pytest.mark.parametrize("runner_up", [0.0, 0.5, 1.0])
def test_choices_are_the_targets_as_often_as_asked(acceptance, runner_up):
    drafter = SimulatedDrafter(TARGET, acceptance, runner_up)
    drawn = [(TARGET.token(state), *drafter.choices(state)) for state in CONTEXTS]
    assert all(first != second and {first, second} <= set(range(50)) for _, first, second in drawn)
    assert is_near(np.mean([first == token for token, first, _ in drawn]), acceptance)
    rejected = [(token, second) for token, first, second in drawn if first != token]
    if rejected:
        found = np.mean([second == token for token, second in rejected])
        assert is_near(found, runner_up, len(rejected))


def test_agreement_is_independent_from_one_position_to_the_next():
    drafter = SimulatedDrafter(TARGET, acceptance=0.6)
    state, agreed = TARGET.start, []
    for _ in range(NUM_CONTEXTS):
        token = TARGET.token(state)
        agreed.append(drafter.choices(state)[0] == token)
        state = TARGET.after(state, [token])
    assert abs(np.corrcoef(agreed[:-1], agreed[1:])[0, 1]) < 5 / math.sqrt(NUM_CONTEXTS)


def test_drafters_of_different_salts_agree_independently():
    first, second = (
        [
            SimulatedDrafter(TARGET, 0.6, salt=salt).choices(s)[0] == TARGET.token(s)
            for s in CONTEXTS
        ]
        for salt in (0, 1)
    )
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / math.sqrt(NUM_CONTEXTS)


def test_higher_acceptance_only_turns_rejections_into_acceptances():
    low, high = (SimulatedDrafter(TARGET, acceptance) for acceptance in (0.4, 0.7))
    turned = 0
    for state in CONTEXTS:
        token, before, after = TARGET.token(state), low.choices(state), high.choices(state)
        if before != after:
            turned += 1
            assert before[0] != token == after[0]
    assert is_near(turned / NUM_CONTEXTS, 0.3)


def test_smallest_vocabulary_still_has_two_wrong_tokens():
    target = SimulatedTarget(vocab_size=4)
    drafter = SimulatedDrafter(target, acceptance=0, runner_up=0)
    for state in CONTEXTS:
        assert len({target.token(state), *drafter.choices(state)}) == 3


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: SimulatedTarget(vocab_size=3), "vocab_size"),
        (lambda: SimulatedTarget(seed=-1), "seed"),
        (lambda: SimulatedTarget(seed=2**64), "seed"),
        (lambda: SimulatedDrafter(TARGET, acceptance=1.01), "acceptance"),
        (lambda: SimulatedDrafter(TARGET, acceptance=math.nan), "acceptance"),
        (lambda: SimulatedDrafter(TARGET, acceptance=0.5, runner_up=-0.1), "runner_up"),
        (lambda: SimulatedDrafter(TARGET, acceptance=0.5, salt=2**64), "salt"),
    ],
)
def test_wrong_parameters_are_refused_by_name(make, field):
    with pytest.raises(InvalidField) as refusal:
        make()
    assert refusal.value.field == field

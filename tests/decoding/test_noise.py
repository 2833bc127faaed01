"""Noise is a fixed function, and looks random along every axis it is keyed by."""

import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmesh.decoding import noise
from specmesh.decoding.noise import (
    BLOCK_IDS,
    BLOCK_STRIDE,
    TILE_IDS,
    BlockNoise,
    Purpose,
    blocks_of,
    first_ids,
    gumbel,
    gumbel_below,
    stream_key,
    uniforms,
)
from specmesh.decoding.sampling import Sampling, choose

IDS = np.arange(4096)
COUPLED = Sampling(temperature=0.8, seed=5)


@pytest.mark.parametrize(
    ("seed", "position", "purpose", "expected"),
    [
        (0, 0, Purpose.COUPLED, "1.0983a45556404p-3 1.98f1f72f39cb0p-5 1.39cd856321834p-3"),
        (1, 0, Purpose.COUPLED, "1.c5032bbbb3dc9p-1 1.9cd7e8ce68bd2p-2 1.f808fba27113fp-1"),
        (0, 1, Purpose.COUPLED, "1.a3804e0d0f309p-1 1.035ae47503f7ap-2 1.121482abff9e8p-4"),
        (0, 0, Purpose.DRAFT, "1.b3ddefe0e7a6fp-1 1.7e5ef085b7be4p-3 1.b80169ce507a3p-1"),
        (42, 17, Purpose.ACCEPT, "1.2521f4829cb59p-1 1.693879f735c8ap-2 1.5c2c6c1aeb46cp-3"),
        (
            2**64 - 1,
            1000,
            Purpose.RESIDUAL,
            "1.be8352b426012p-2 1.c430ba5731ffcp-3 1.6b7533ba29501p-1",
        ),
    ],
)
def test_noise_never_changes(seed, position, purpose, expected):
    found = uniforms(seed, position, purpose, np.array([0, 1, 151_935]))
    assert found.tolist() == [float.fromhex(f"0x{number}") for number in expected.split()]


def test_purposes_keep_their_numbers():
    assert {purpose.name: int(purpose) for purpose in Purpose} == {
        "COUPLED": 0,
        "DRAFT": 1,
        "ACCEPT": 2,
        "RESIDUAL": 3,
        "PREDICT": 4,
    }


def test_stream_is_the_published_splitmix64():
    # The sequence for seed 1234567 that implementations of SplitMix64 are checked against.
    assert noise._outputs(1_234_567, np.arange(5)).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**64 - 1),
    position=st.integers(0, 2**32),
    purpose=st.sampled_from(Purpose),
    ids=st.lists(st.integers(0, 2**32 - 1), max_size=20),
)
def test_noise_of_a_token_does_not_depend_on_the_tokens_asked_with_it(seed, position, purpose, ids):
    together = uniforms(seed, position, purpose, np.array(ids, dtype=np.int64))
    alone = [uniforms(seed, position, purpose, np.array([i]))[0] for i in ids]
    assert together.tolist() == alone


def test_uniforms_touch_neither_0_nor_1(monkeypatch):
    extremes = np.array([0, 2**64 - 1], dtype=np.uint64)
    monkeypatch.setattr(noise, "_mixed_in_place", lambda z: np.resize(extremes, z.size))
    lowest, highest = uniforms(0, 0, Purpose.DRAFT, np.arange(2))
    assert lowest > 0
    assert highest < 1
    assert np.isfinite(gumbel(0, 0, Purpose.DRAFT, np.arange(2))).all()


AXES = {
    "ids": lambda: uniforms(1, 2, Purpose.COUPLED, np.arange(1 << 16)),
    "positions": lambda: along(lambda i: (7, i, Purpose.COUPLED)),
    "seeds": lambda: along(lambda i: (i, 3, Purpose.ACCEPT)),
}


def along(key):
    return np.concatenate([uniforms(*key(i), np.array([5])) for i in range(4096)])


@pytest.mark.parametrize("axis", AXES)
def test_uniforms_are_uniform(axis):
    ordered = np.sort(AXES[axis]())
    steps = np.arange(1, ordered.size + 1) / ordered.size
    # Kolmogorov-Smirnov: P(sqrt(n) D > 2.7) = 2 exp(-2 * 2.7**2) < 1e-6.
    assert np.abs(steps - ordered).max() * np.sqrt(ordered.size) < 2.7


@pytest.mark.parametrize("axis", AXES)
def test_neighbours_are_independent(axis):
    centred = AXES[axis]() - 0.5
    for lag in (1, 2, 3, 16):
        correlation = 12 * np.mean(centred[lag:] * centred[:-lag])
        assert abs(correlation) < 5 / np.sqrt(centred.size)  # 5 standard errors


def test_seeds_positions_and_purposes_give_independent_streams():
    keys = list(itertools.product([0, 1, 2, 2**63], [0, 1, 2, 3, 1000], Purpose))
    streams = np.array([uniforms(*key, IDS) for key in keys])
    correlations = np.corrcoef(streams) - np.eye(len(keys))
    # 3,160 pairs: 6 standard errors are passed by chance with p < 1e-5.
    assert np.abs(correlations).max() < 6 / np.sqrt(IDS.size)


def test_words_of_the_key_are_not_interchangeable():
    assert uniforms(1, 2, Purpose.COUPLED, IDS)[0] != uniforms(2, 1, Purpose.COUPLED, IDS)[0]
    assert uniforms(0, 1, Purpose.COUPLED, IDS)[0] != uniforms(0, 0, Purpose.DRAFT, IDS)[0]


def test_every_bit_of_the_key_stirs_half_of_the_output():
    bits = [noise._outputs(noise.stream_key(9, 9, Purpose.DRAFT), IDS)]
    for bit in range(64):
        for seed, position in ((9 ^ (1 << bit), 9), (9, 9 ^ (1 << bit))):
            bits.append(noise._outputs(noise.stream_key(seed, position, Purpose.DRAFT), IDS))
    flipped = np.bitwise_count(np.array(bits[1:]) ^ bits[0]).mean(axis=1)
    # Binomial(64, 1/2) over 4,096 words: the mean has a standard error of 1/16.
    assert np.abs(flipped - 32).max() < 6 / 16


def test_gumbel_noise_follows_its_law():
    ordered = np.sort(gumbel(3, 4, Purpose.DRAFT, np.arange(1 << 16)))
    steps = np.arange(1, ordered.size + 1) / ordered.size
    assert np.abs(steps - np.exp(-np.exp(-ordered))).max() * np.sqrt(ordered.size) < 2.7


def test_every_id_is_in_the_block_that_its_number_says():
    ids = np.arange(3 * TILE_IDS)
    blocks = blocks_of(ids)
    assert np.unique(blocks).tolist() == list(range(3 * BLOCK_STRIDE))
    first = first_ids(3 * BLOCK_STRIDE)
    for place in range(BLOCK_IDS):
        assert (blocks_of(first + place * BLOCK_STRIDE) == np.arange(first.size)).all()


@pytest.mark.parametrize("num_ids", [1, 511, 512, 513, 4096, 8191, TILE_IDS])
def test_all_ways_to_look_gumbel_noise_up_agree_bit_for_bit(num_ids):
    ids = np.arange(num_ids)
    noise_of_ids = gumbel(3, 4, Purpose.DRAFT, ids)
    assert gumbel_below(3, 4, Purpose.DRAFT, num_ids).tolist() == noise_of_ids.tolist()
    blocks = BlockNoise(stream_key(3, 4, Purpose.DRAFT), BLOCK_STRIDE)
    assert blocks.at(ids).tolist() == noise_of_ids.tolist()
    for few in (ids[:1], ids[num_ids // 2 :: 7]):
        assert gumbel(3, 4, Purpose.DRAFT, few).tolist() == noise_of_ids[few].tolist()


def test_gumbel_noise_never_changes():
    found = gumbel(7, 8, Purpose.COUPLED, np.array([0, 512, 4095, 151_935, 2**32 - 1]))
    assert found.tolist() == pytest.approx(
        [
            -0.5693598957018922,
            0.07832404040262779,
            0.17306067660018667,
            -0.647746929681839,
            2.0236095193866226,
        ],
        rel=1e-14,
    )


NUM_BLOCKS = 16 * BLOCK_STRIDE


def test_highest_noise_of_a_block_is_that_of_its_winner():
    blocks = BlockNoise(stream_key(5, 6, Purpose.COUPLED), NUM_BLOCKS)
    dense = gumbel(5, 6, Purpose.COUPLED, np.arange(NUM_BLOCKS * BLOCK_IDS))
    table = dense.reshape(-1, BLOCK_IDS, BLOCK_STRIDE).transpose(0, 2, 1).reshape(-1, BLOCK_IDS)
    assert blocks.highest.tolist() == table.max(axis=1).tolist()
    expected = first_ids(NUM_BLOCKS) + table.argmax(axis=1) * BLOCK_STRIDE
    assert blocks.winners.tolist() == expected.tolist()


def uniforms_by_block(position=6, purpose=Purpose.COUPLED):
    """Uniform numbers exp(-E), ``[blocks, ids]``."""
    ids = first_ids(NUM_BLOCKS)[:, None] + np.arange(BLOCK_IDS) * BLOCK_STRIDE
    noise_of_ids = gumbel(5, position, purpose, ids.ravel())
    return np.exp(-np.exp(-noise_of_ids)).reshape(ids.shape)


def chi_squared(counts):
    """Return how many standard deviations Pearson's statistic of equally likely cells is too
    high."""
    expected = counts.sum() / counts.size
    degrees = counts.size - 1
    return (((counts - expected) ** 2).sum() / expected - degrees) / np.sqrt(2 * degrees)


def cells(*numbers, num_each=8):
    """Count the cells of a cube in which points of uniform ``numbers`` lie."""
    places = np.ravel_multi_index(
        [np.minimum((each * num_each).astype(int), num_each - 1) for each in numbers],
        (num_each,) * len(numbers),
    )
    return np.bincount(places.ravel(), minlength=num_each ** len(numbers))


def test_every_id_of_a_block_has_uniform_marginals():
    table = uniforms_by_block()
    found = [chi_squared(cells(column, num_each=64)) for column in table.T]
    assert max(found) < 6
    assert chi_squared(cells(table, num_each=4096)) < 6


def test_ids_of_a_block_are_independent():
    table = uniforms_by_block()
    pairs = list(itertools.combinations(range(BLOCK_IDS), 2))
    found = [chi_squared(cells(table[:, one], table[:, other])) for one, other in pairs]
    # 2,016 statistics with 63 degrees of freedom.
    assert max(found) < 7
    assert abs(np.mean(found)) < 0.15
    for three in itertools.combinations(range(0, BLOCK_IDS, 9), 3):
        assert chi_squared(cells(*table[:, three].T, num_each=5)) < 7


def test_least_of_a_block_is_at_any_place_whatever_its_size():
    blocks = BlockNoise(stream_key(5, 6, Purpose.COUPLED), NUM_BLOCKS)
    places = (blocks.winners - first_ids(NUM_BLOCKS)) // BLOCK_STRIDE
    assert chi_squared(np.bincount(places, minlength=BLOCK_IDS)) < 6
    size = np.exp(-BLOCK_IDS * blocks.least)
    assert chi_squared(cells(size, places / BLOCK_IDS)) < 6


@pytest.mark.parametrize("other", [(7, Purpose.COUPLED), (6, Purpose.RESIDUAL)])
def test_noise_of_positions_and_purposes_is_independent(other):
    one, two = uniforms_by_block(), uniforms_by_block(*other)
    for shift in range(4):
        assert chi_squared(cells(one, np.roll(two, shift, axis=1), num_each=32)) < 6
    leasts = [each.max(axis=1) ** BLOCK_IDS for each in (one, two)]
    assert chi_squared(cells(*leasts)) < 6


def test_neighbouring_blocks_are_independent():
    table = uniforms_by_block()
    assert chi_squared(cells(table[1:], table[:-1], num_each=32)) < 6
    least = table.max(axis=1) ** BLOCK_IDS
    assert chi_squared(cells(least[1:], least[:-1])) < 6


def test_a_million_uniform_numbers_have_the_same_bits_on_every_machine():
    found = uniforms(2**63 + 1, 12_345, Purpose.COUPLED, np.arange(1 << 20))
    assert (
        hashlib.sha256(found.tobytes()).hexdigest()
        == "a55d643d985cbb1fe6fb4e94c0d8ecd82236c23ccf968911c701a89e5712420b"
    )


def test_draws_are_the_same_tokens_on_every_machine():
    """From logits that float32 represents exactly."""
    ids = np.arange(4096)
    draws = [
        choose(((ids * 37 + position) % 512).astype(np.float32) / 64, COUPLED, position)
        for position in range(256)
    ]
    found = np.array(draws, "<i8")
    assert (
        hashlib.sha256(found.tobytes()).hexdigest()
        == "9aba826a07167973b3f3220235abd02647a5b01e03a6043d7c0ff17600c1653b"
    )

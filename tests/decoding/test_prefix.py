"""Block digests name prefixes."""

import hashlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmesh.decoding.prefix import BLOCK_TOKENS, SALT_BYTES, PrefixChain

TOKENS = st.lists(st.integers(0, 2**32 - 1), max_size=70)


def test_digests_never_change():
    # Replicas and the store name prefixes by these across versions.
    assert [digest.hex() for digest in PrefixChain(range(40)).digests] == [
        "1b0cd756b8a49da656091d1fcc620279",
        "23c42dc62d8010a50554cd07c5d1c92d",
    ]


def test_digest_chains_blake2b_over_little_endian_blocks():
    tokens = [2**32 - 1 - i for i in range(35)]
    first = hashlib.blake2b(struct.pack("<16I", *tokens[:16]), digest_size=16).digest()
    second = hashlib.blake2b(first + struct.pack("<16I", *tokens[16:32]), digest_size=16).digest()
    assert PrefixChain(tokens).digests == [first, second]


@settings(deadline=None)
@given(TOKENS, st.integers(0, 69))
def test_digest_tells_every_earlier_token(tokens, at):
    if at >= len(tokens):
        return
    changed = list(tokens)
    changed[at] ^= 1
    block = at // BLOCK_TOKENS
    ours, theirs = PrefixChain(tokens).digests, PrefixChain(changed).digests
    assert ours[:block] == theirs[:block]
    assert all(a != b for a, b in zip(ours[block:], theirs[block:], strict=True))


@settings(deadline=None)
@given(TOKENS, TOKENS)
def test_copy_of_a_chain_goes_its_own_way(tokens, more):
    chain = PrefixChain(tokens)
    copy = PrefixChain(chain)
    copy.append(more)
    assert (list(chain), chain.digests) == (tokens, PrefixChain(tokens).digests)
    assert (list(copy), copy.digests) == ([*tokens, *more], PrefixChain([*tokens, *more]).digests)


@settings(deadline=None)
@given(st.lists(st.one_of(TOKENS, st.integers(0, 100)), max_size=10))
def test_chain_that_grows_and_shrinks_equals_one_built_at_once(steps):
    chain, tokens = PrefixChain(), []
    for step in steps:
        if isinstance(step, int):
            length = min(step, len(tokens))
            chain.truncate(length)
            del tokens[length:]
        else:
            chain.append(step)
            tokens += step
    digests = [b"", *PrefixChain(tokens).digests]
    assert list(chain) == tokens
    assert len(chain) == len(tokens)
    assert chain.base() == (len(tokens) // BLOCK_TOKENS * BLOCK_TOKENS, digests[-1])
    assert [chain.digest_at(k * BLOCK_TOKENS) for k in range(len(digests))] == digests


@pytest.mark.parametrize("base_length", [-16, 1, 15, 17, 48])
def test_no_digest_inside_a_block_or_past_the_end(base_length):
    with pytest.raises(ValueError, match="no digest"):
        PrefixChain(range(40)).digest_at(base_length)


@pytest.mark.parametrize("length", [-1, 41])
def test_chain_cannot_be_cut_to_more_than_it_holds(length):
    with pytest.raises(ValueError, match="cannot cut"):
        PrefixChain(range(40)).truncate(length)


def test_chains_of_different_salts_have_no_digest_in_common():
    salts = [b"", bytes(SALT_BYTES), b"a" * SALT_BYTES]
    chains = [PrefixChain(range(64), salt) for salt in salts]
    assert len({digest for chain in chains for digest in chain.digests}) == 3 * 4
    assert [chain.digest_at(0) for chain in chains] == salts


def test_a_copy_has_the_salt_and_grows_as_the_original():
    chain = PrefixChain(range(20), b"a" * SALT_BYTES)
    copy = PrefixChain(chain)
    copy.append(range(20))
    chain.append(range(20))
    assert (copy.salt, copy.digests) == (chain.salt, chain.digests)
    copy.truncate(0)
    assert copy.base() == (0, chain.salt)


@pytest.mark.parametrize("num_bytes", [1, 16, 31, 33])
def test_a_salt_is_never_what_a_digest_could_be(num_bytes):
    with pytest.raises(ValueError, match="salt"):
        PrefixChain(salt=bytes(num_bytes))

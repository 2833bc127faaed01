"""Chains of recent calls, from which bases are copied."""

from __future__ import annotations

import pytest

from specmesh.decoding.prefix import SALT_BYTES, PrefixChain
from specmesh.inference.engine.blocks import recent_chains
from specmesh.inference.engine.blocks.pool import BlockPool
from specmesh.inference.engine.blocks.recent_chains import LOOK_BACK, RecentChains


def found(chains: RecentChains, tokens: range, salt: bytes = b"") -> list[int] | None:
    chain = chains.find(len(tokens), PrefixChain(tokens, salt).digest_at(len(tokens)))
    return None if chain is None else list(chain)


@pytest.mark.parametrize("length", [16, 32, 48])
def test_any_whole_beginning_of_a_chain_is_found(length):
    chains = RecentChains(100)
    chains.add(PrefixChain(range(50)))
    assert found(chains, range(length)) == list(range(length))
    assert found(chains, range(1, length + 1)) is None
    assert found(chains, range(64)) is None


def test_what_is_found_may_be_changed():
    chains = RecentChains(100)
    chains.add(PrefixChain(range(40)))
    chain = chains.find(*PrefixChain(range(32)).base())
    assert chain is not None
    chain.append([7])
    assert found(chains, range(32)) == list(range(32))


def test_a_chain_replaces_those_that_it_continues():
    chains = RecentChains(100)
    for length in range(20, 90, 10):
        chains.add(PrefixChain(range(length)))
    assert found(chains, range(16)) == list(range(16))
    chains.add(PrefixChain(range(200, 220)))  # there is room for it beside the latest
    assert found(chains, range(80)) == list(range(80))


@pytest.mark.parametrize(("num_more", "is_kept"), [(LOOK_BACK - 1, False), (LOOK_BACK, True)])
def test_a_chain_that_is_continued_by_many_blocks_stays(num_more, is_kept):
    short, long = range(16), range(16 * (1 + num_more))
    chains = RecentChains(len(short) + len(long))
    for tokens in (range(5000, 5016), short, long):
        chains.add(PrefixChain(tokens))
    # There is room for one more beside the long one: if the short one stays, the first must go.
    assert (found(chains, range(5000, 5016)) is None) == is_kept


def test_the_oldest_are_forgotten_beyond_the_budget(monkeypatch):
    monkeypatch.setattr(recent_chains, "MAX_CHAINS", 2)
    chains = RecentChains(70)
    chains.add(PrefixChain(range(20)))
    chains.add(PrefixChain(range(100, 120)))
    chains.add(PrefixChain(range(200, 220)))
    assert found(chains, range(16)) is None
    assert found(chains, range(100, 116)) is not None
    chains.add(PrefixChain(range(300, 360)))  # too many tokens
    assert found(chains, range(100, 116)) is None
    assert found(chains, range(200, 216)) is None
    assert found(chains, range(300, 348)) is not None


def test_chains_of_other_salts_are_others():
    chains = RecentChains(100)
    chains.add(PrefixChain(range(20), b"a" * SALT_BYTES))
    assert found(chains, range(16)) is None
    assert found(chains, range(16), b"a" * SALT_BYTES) == list(range(16))


def test_a_base_whose_blocks_were_evicted_is_not_found_though_its_chain_is_known():
    pool = BlockPool(4)
    chain = PrefixChain(range(40))
    pool.close(pool.open(chain, 0), chain)
    length, digest = chain.base()
    assert pool.find_base(length, digest) is not None
    other = PrefixChain(range(100, 130))
    pool.close(pool.open(other, 32), None)  # it takes all blocks, and leaves nothing
    assert pool.find_base(length, digest) is None


def test_the_digest_of_a_whole_chain_is_not_found_with_another_length():
    chains = RecentChains(100)
    chains.add(PrefixChain(range(50)))
    _, digest = PrefixChain(range(50)).base()
    assert chains.find(32, digest) is None
    assert chains.find(64, digest) is None


def test_the_chains_of_hundreds_of_calls_are_all_found():
    chains = RecentChains(100_000)
    calls = [range(100 * number, 100 * number + 40) for number in range(256)]
    for _ in range(2):
        for call in calls:
            chains.add(PrefixChain(call))
    assert all(found(chains, call[:32]) == list(call[:32]) for call in calls)

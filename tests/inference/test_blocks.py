"""Who gets which KV block, what of it is held already, and what is let go first."""

from __future__ import annotations

import threading

import pytest

from specmesh.decoding.prefix import BLOCK_TOKENS, SALT_BYTES, PrefixChain
from specmesh.inference.engine.blocks.pool import BlockPool, NoRoom, TooLarge


def hold(pool: BlockPool, tokens: list[int]) -> list[int]:
    """Let the pool cache ``tokens``; returns the blocks they went through."""
    table = pool.open(PrefixChain(tokens), 0)
    blocks: list[int] = table.blocks.tolist()
    pool.close(table, PrefixChain(tokens))
    return blocks


def held(pool: BlockPool, tokens: list[int]) -> int:
    """How many of ``tokens`` are held in full blocks."""
    chain = PrefixChain(tokens)
    ends = range(0, len(tokens) + 1, BLOCK_TOKENS)
    return max(end for end in ends if pool.find_base(end, chain.digest_at(end)) is not None)


def figures(pool: BlockPool) -> tuple[int, ...]:
    return (
        *(pool.num_used, pool.num_cached, pool.num_free, pool.num_shared, pool.num_evicted),
        *(pool.num_looked_up_tokens, pool.num_hit_tokens),
    )


def test_new_sequence_gets_consecutive_blocks_for_prefix_and_room():
    pool = BlockPool(9)
    table = pool.open(PrefixChain(range(30)), 3)
    assert (table.blocks.tolist(), table.num_cached, table.copies) == ([0, 1, 2], 0, [])
    assert (pool.num_used, pool.num_cached, pool.num_free) == (3, 0, 6)


@pytest.mark.parametrize("num_shared", [1, 15, 16, 17, 31, 32, 33, 40])
def test_shared_beginning_is_cached_to_the_token(num_shared):
    pool = BlockPool(9)
    first = hold(pool, list(range(40)))
    table = pool.open(PrefixChain([*range(num_shared), 99, 98]), 0)
    assert table.num_cached == num_shared
    num_full = num_shared // BLOCK_TOKENS
    assert table.blocks[:num_full].tolist() == first[:num_full]
    assert pool.num_looked_up_tokens == 40 + num_shared + 2
    assert pool.num_hit_tokens == num_shared


def test_middle_of_a_full_block_is_copied():
    pool = BlockPool(9)
    first = hold(pool, list(range(32)))
    table = pool.open(PrefixChain([*range(20), 99]), 0)
    assert table.copies == [(first[1], table.blocks[1], 4)]
    assert table.blocks[1] not in first


def test_last_token_of_a_held_prefix_is_not_written_to_its_full_block():
    pool = BlockPool(9)
    first = hold(pool, list(range(32)))
    table = pool.open(PrefixChain(range(32)), 0)
    assert table.num_cached == 31
    assert table.copies == [(first[1], table.blocks[1], 15)]


def test_tail_is_written_on_in_place():
    pool = BlockPool(9)
    first = hold(pool, list(range(20)))
    table = pool.open(PrefixChain(range(22)), 0)
    assert (table.blocks.tolist(), table.num_cached, table.copies) == (first, 20, [])


def test_tail_that_went_on_otherwise_is_overwritten_from_there():
    pool = BlockPool(9)
    first = hold(pool, [*range(20), 7, 7, 7])
    table = pool.open(PrefixChain([*range(20), 8]), 0)
    assert (table.blocks.tolist(), table.num_cached, table.copies) == (first, 20, [])
    pool.close(table, None)
    again = pool.open(PrefixChain([*range(20), 7, 7, 7]), 0)
    assert again.num_cached == 20


def test_tail_in_use_is_copied_by_whoever_else_wants_it():
    pool = BlockPool(9)
    hold(pool, list(range(20)))
    first = pool.open(PrefixChain([*range(20), 1]), 4)
    second = pool.open(PrefixChain([*range(20), 2]), 4)
    third = pool.open(PrefixChain([*range(20), 3]), 4)
    assert second.num_cached == third.num_cached == 20
    assert second.copies == [(first.blocks[1], second.blocks[1], 4)]
    assert third.copies == [(first.blocks[1], third.blocks[1], 4)]
    assert len({first.blocks[1], second.blocks[1], third.blocks[1]}) == 3


def test_source_of_a_copy_is_not_taken_over_before_it_is_copied():
    pool = BlockPool(3)
    hold(pool, list(range(4)))
    first = pool.open(PrefixChain([*range(4), 1]), 0)
    second = pool.open(PrefixChain([*range(4), 2]), 0)
    source = second.copies[0][0]
    pool.close(first, None)
    assert source not in pool.open(PrefixChain([*range(2), 3]), 0).blocks
    with pytest.raises(NoRoom):
        pool.open(PrefixChain([9]), 0)


def test_block_to_copy_from_is_evicted_where_there_is_no_room_for_both():
    pool = BlockPool(1)
    hold(pool, list(range(16)))
    table = pool.open(PrefixChain([*range(8), 99]), 0)
    assert (table.blocks.tolist(), table.num_cached, table.copies) == ([0], 0, [])
    assert pool.num_evicted == 1


def test_longest_of_many_beginnings_is_found():
    pool = BlockPool(199)
    for token in range(100):
        hold(pool, [7, token, token, *range(13)])
    table = pool.open(PrefixChain([7, 50, 50, 0, 1, 99]), 0)
    assert table.num_cached == 5


def test_accepted_tokens_are_held_and_the_rest_of_the_tree_is_not():
    pool = BlockPool(9)
    table = pool.open(PrefixChain(range(14)), 8)
    pool.close(table, PrefixChain(range(17)))
    assert pool.open(PrefixChain(range(30)), 0).num_cached == 17


def test_interrupted_prefill_keeps_what_was_computed():
    pool = BlockPool(9)
    pool.close(pool.open(PrefixChain(range(100)), 8), PrefixChain(range(40)))
    assert (pool.num_cached, pool.num_free) == (3, 6)
    assert pool.open(PrefixChain(range(100)), 8).num_cached == 40


def test_sequence_that_never_ran_keeps_what_was_held_before():
    pool = BlockPool(9)
    hold(pool, list(range(20)))
    pool.close(pool.open(PrefixChain(range(60)), 8), None)
    assert (pool.num_used, pool.num_cached, pool.num_free) == (0, 2, 7)
    assert pool.open(PrefixChain(range(60)), 8).num_cached == 20


def test_block_computed_twice_is_held_once():
    pool = BlockPool(9)
    tables = [pool.open(PrefixChain(range(20)), 0) for _ in range(2)]
    for table in tables:
        pool.close(table, PrefixChain(range(20)))
    assert (pool.num_used, pool.num_cached, pool.num_free) == (0, 2, 7)


@pytest.mark.parametrize("lengths", [(18, 20), (20, 18), (18, 40), (40, 18)])
def test_tail_that_says_no_more_than_another_block_is_freed(lengths):
    pool = BlockPool(9)
    tables = [pool.open(PrefixChain(range(16)), 30) for _ in lengths]
    for table, length in zip(tables, lengths, strict=True):
        pool.close(table, PrefixChain(range(length)))
    assert pool.num_cached == -(-max(lengths) // BLOCK_TOKENS)
    assert pool.open(PrefixChain(range(50)), 0).num_cached == max(lengths)


@pytest.mark.parametrize("copy_first", [False, True])
def test_of_a_tail_and_its_copy_the_one_that_says_more_is_held(copy_first):
    pool = BlockPool(9)
    hold(pool, list(range(18)))
    tables = [pool.open(PrefixChain(range(20)), 0) for _ in range(2)]
    closing = list(zip(tables, (19, 20), strict=True))
    for table, length in reversed(closing) if copy_first else closing:
        pool.close(table, PrefixChain(range(length)))
    assert (pool.num_used, pool.num_cached) == (0, 2)
    assert pool.open(PrefixChain(range(30)), 0).num_cached == 20


def test_published_prefix_is_shared_while_its_sequence_goes_on():
    pool = BlockPool(9)
    first = pool.open(PrefixChain(range(40)), 8)
    assert pool.open(PrefixChain(range(40)), 0).num_cached == 0
    pool.publish(first, PrefixChain(range(40)))
    second = pool.open(PrefixChain([*range(40), 1]), 0)
    assert second.num_cached == 40
    assert second.blocks[:2].tolist() == first.blocks[:2].tolist()
    assert second.copies == [(first.blocks[2], second.blocks[2], 8)]
    assert pool.num_shared == 3


def test_prefix_published_second_is_shared_from_the_first():
    pool = BlockPool(11)
    tables = [pool.open(PrefixChain(range(32)), 0) for _ in range(2)]
    for table in tables:
        pool.publish(table, PrefixChain(range(32)))
    blocks = pool.open(PrefixChain(range(33)), 0).blocks
    assert blocks[:2].tolist() == tables[0].blocks.tolist()


def test_no_block_is_published_below_one_of_another_sequence():
    pool = BlockPool(11)
    tables = [pool.open(PrefixChain(range(16)), 32) for _ in range(2)]
    pool.publish(tables[0], PrefixChain(range(16)))
    pool.publish(tables[1], PrefixChain(range(48)))
    assert held(pool, list(range(48))) == 16  # what it hangs from might be evicted before it
    pool.close(tables[1], PrefixChain(range(48)))
    assert held(pool, list(range(48))) == 48


def test_tokens_accepted_after_a_published_tail_are_held():
    pool = BlockPool(9)
    table = pool.open(PrefixChain(range(20)), 30)
    for length in (20, 24, 33):
        pool.publish(table, PrefixChain(range(length)))
        pool.close(pool.open(PrefixChain(range(length + 1)), 0), None)
    pool.close(table, PrefixChain(range(40)))
    assert pool.open(PrefixChain(range(60)), 0).num_cached == 40
    assert pool.num_used + pool.num_cached == 4


def test_least_recently_used_is_evicted_first():
    pool = BlockPool(3)
    prompts = [[token] * 16 for token in range(4)]
    for prompt in prompts[:3]:
        hold(pool, prompt)
    pool.close(pool.open(PrefixChain([*prompts[0], 9]), 0), None)  # evicts 1, uses 0
    hold(pool, prompts[3])  # takes what that freed
    hold(pool, [5])
    assert [held(pool, prompt) for prompt in prompts] == [16, 0, 0, 16]
    assert pool.num_evicted == 2


def test_children_are_evicted_before_their_parents():
    pool = BlockPool(5)
    tokens = list(range(80))
    hold(pool, tokens)
    for num_blocks in range(1, 6):
        pool.close(pool.open(PrefixChain([99]), num_blocks * BLOCK_TOKENS - 1), None)
        assert held(pool, tokens) == (5 - num_blocks) * BLOCK_TOKENS


def test_parents_computed_twice_outlive_the_later_child():
    pool = BlockPool(5)
    tables = [pool.open(PrefixChain(range(16)), room) for room in (0, 16)]
    for table, length in zip(tables, (16, 32), strict=True):
        pool.close(table, PrefixChain(range(length)))
    pool.close(pool.open(PrefixChain([99]), 4 * BLOCK_TOKENS - 1), None)
    assert pool.num_evicted == 1
    assert held(pool, list(range(32))) == 16


def test_nothing_in_use_is_evicted():
    pool = BlockPool(5)
    tokens = list(range(32))
    hold(pool, tokens)
    table = pool.open(PrefixChain([*tokens, 1]), 0)
    other = pool.open(PrefixChain([99]), 31)
    assert held(pool, tokens) == 32
    assert not set(table.blocks) & set(other.blocks)


def test_no_room_leaves_all_as_it_was():
    pool = BlockPool(5)
    hold(pool, [*range(32), 7, 7])
    other = pool.open(PrefixChain([99]), 31)
    before = figures(pool)
    with pytest.raises(NoRoom, match="2 of 5 blocks"):
        pool.open(PrefixChain([*range(32), 7, 8]), 15)
    assert figures(pool) == before
    assert held(pool, list(range(32))) == 32
    pool.close(other, None)
    assert pool.open(PrefixChain([*range(32), 7, 7, 7]), 15).num_cached == 34


def test_more_than_there_is_in_all_is_too_large():
    pool = BlockPool(3)
    with pytest.raises(TooLarge, match="49 tokens of KV cache, of which this replica has 48"):
        pool.open(PrefixChain(range(40)), 9)
    assert figures(pool) == figures(BlockPool(3))
    assert len(pool.open(PrefixChain(range(40)), 8).blocks) == 3


def test_base_is_found_by_digest_and_length_together():
    pool = BlockPool(9)
    tokens = list(range(40))
    hold(pool, tokens)
    chain = PrefixChain(tokens)
    assert_base(pool.find_base(32, chain.digest_at(32)), tokens[:32])
    assert_base(pool.find_base(16, chain.digest_at(16)), tokens[:16])
    assert pool.find_base(32, chain.digest_at(16)) is None
    assert pool.find_base(16, chain.digest_at(32)) is None
    assert pool.find_base(16, b"") is None
    assert pool.find_base(16, b"no digest") is None
    assert pool.find_base(0, b"no digest") is None


def assert_base(found: PrefixChain | None, tokens: list[int]) -> None:
    assert found is not None
    assert list(found) == tokens
    assert found.digests == PrefixChain(tokens).digests


def test_base_is_right_or_not_found_while_blocks_are_evicted():
    pool = BlockPool(11)
    prompts = [list(range(first, first + 64)) for first in range(0, 400, 100)]
    chains = [PrefixChain(prompt) for prompt in prompts]
    done = threading.Event()
    wrong = []

    def look() -> None:
        while not done.is_set():
            for prompt, chain in zip(prompts, chains, strict=True):
                found = pool.find_base(*chain.base())
                if found is not None and list(found) != prompt:
                    wrong.append(prompt)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in range(300):
            for prompt in prompts:
                hold(pool, prompt)
    finally:
        done.set()
        thread.join()
    assert not wrong
    assert pool.num_evicted > 300


@pytest.mark.parametrize("num_tokens", [5, 16, 40])
def test_prefixes_of_different_salts_share_no_block(num_tokens):
    pool = BlockPool(99)
    salts = [b"", b"a" * SALT_BYTES, b"b" * SALT_BYTES]
    chains = [PrefixChain(range(num_tokens), salt) for salt in salts]
    taken = []
    for chain in chains:
        table = pool.open(chain, 0)
        assert table.num_cached == 0
        taken.append(set(table.blocks))
        pool.close(table, chain)
    assert not taken[0] & taken[1] | taken[1] & taken[2] | taken[0] & taken[2]
    for chain, blocks in zip(chains, taken, strict=True):
        longer = PrefixChain(chain)
        longer.append([99])
        table = pool.open(longer, 0)
        assert table.num_cached == num_tokens
        assert set(table.blocks) & blocks
        pool.close(table, longer)


def test_a_base_is_found_with_its_salt_and_not_without_its_first_block():
    pool = BlockPool(9)
    chain = PrefixChain(range(48), b"a" * SALT_BYTES)
    pool.close(pool.open(chain, 0), chain)
    found = pool.find_base(*chain.base())
    assert found is not None
    assert (list(found), found.salt) == (list(chain), chain.salt)
    assert pool.find_base(32, chain.digest_at(48)) is None

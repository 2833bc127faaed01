"""Which blocks a call goes on in the middle of. vLLM's block pool is scripted here; the real one is
behind ``tests/conformance``."""

from dataclasses import dataclass

import pytest

from specmesh.decoding.prefix import SALT_BYTES, PrefixChain
from specmesh.inference.models.vllm.tails import TAIL, Tails

BLOCK_TOKENS = 32
TEXT = list(range(100, 200))


@dataclass
class Block:
    block_id: int
    block_hash: bytes | None = None
    ref_cnt: int = 1

    def set_block_hash(self, block_hash):
        assert self.block_hash is None
        self.block_hash = block_hash


class Pool:
    """What of vLLM's ``BlockPool`` is used. ``free`` are in the order in which they are reused:
    those without a hash before all others."""

    def __init__(self, num_blocks):
        self.blocks = [Block(number, ref_cnt=0) for number in range(num_blocks)]
        self.free = list(range(num_blocks))

    def get_new_blocks(self, number):
        taken, self.free = self.free[:number], self.free[number:]
        for each in taken:
            self.blocks[each] = Block(each)
        return [self.blocks[each] for each in taken]

    def touch(self, blocks):
        for block in blocks:
            if not block.ref_cnt:
                self.free.remove(block.block_id)
            block.ref_cnt += 1

    def free_blocks(self, blocks):
        for block in blocks:
            block.ref_cnt -= 1
            if not block.ref_cnt:
                at = len(self.free) if block.block_hash else 0
                self.free.insert(at, block.block_id)

    def evict_blocks(self, numbers):
        for number in numbers:
            self.blocks[number].block_hash = None


class Calls:
    """Calls, one after the other, as the scheduler has them."""

    def __init__(self, num_blocks=20):
        self.pool = Pool(num_blocks)
        self.tails = Tails(self.pool, BLOCK_TOKENS)

    def compute(self, tokens, salt=b"", start=0) -> int:
        """Computes ``tokens``; how many of those from ``start`` on were there."""
        chain = PrefixChain(tokens, salt)
        found = self.tails.find(chain, start, len(chain) - 1)
        source, num_shared = found or (None, 0)
        blocks = self.pool.get_new_blocks(-(-len(chain) // BLOCK_TOKENS))
        for block in blocks[: len(chain) // BLOCK_TOKENS]:
            block.block_hash = b"full"  # as vLLM has it
        self.tails.keep(blocks, chain, source)
        self.pool.free_blocks(reversed(blocks))
        return num_shared

    def kept(self) -> int:
        return sum(block.block_hash == TAIL for block in self.pool.blocks)


def test_a_call_goes_on_behind_what_another_has_computed_to_the_token():
    calls = Calls()
    assert calls.compute(TEXT[:10]) == 0
    assert calls.compute(TEXT[:15]) == 10
    assert calls.compute([*TEXT[:12], 7, 8, 9]) == 12


def test_the_last_token_is_computed_again():
    calls = Calls()
    calls.compute(TEXT[:10])
    assert calls.compute(TEXT[:10]) == 9


def test_a_full_block_is_gone_on_from_in_its_middle():
    """Such as the block of a system prompt in which users part."""
    calls = Calls()
    calls.compute(TEXT[: 2 * BLOCK_TOKENS])
    assert calls.compute([*TEXT[:40], 7, 8], start=BLOCK_TOKENS) == 8
    assert calls.compute([*TEXT[:50], 9, 9], start=BLOCK_TOKENS) == 18
    assert calls.compute(TEXT[:BLOCK_TOKENS]) == BLOCK_TOKENS - 1


def test_callers_with_another_salt_find_nothing():
    calls = Calls()
    calls.compute(TEXT[:10])
    assert calls.compute(TEXT[:15], salt=bytes(SALT_BYTES)) == 0


def test_a_session_leaves_one_tail_however_many_drafts_of_it_are_rejected():
    calls = Calls()
    for length in range(4, 28):
        calls.compute([*TEXT[:length], 1, 2, 3])
    assert calls.kept() == 1
    assert calls.compute(TEXT[:30]) == 27


def test_a_tail_that_is_part_of_another_is_not_kept():
    calls = Calls()
    calls.compute(TEXT[:20])
    calls.compute(TEXT[:10])
    assert calls.kept() == 1
    assert calls.compute(TEXT[:30]) == 20


def test_sessions_that_part_within_a_block_have_a_tail_each():
    calls = Calls()
    one, other = [*TEXT[:9], 1, 1, 1], [*TEXT[:9], 2, 2, 2]
    calls.compute(TEXT[:10])
    calls.compute(other)
    found = [calls.compute([*one, 1]), calls.compute([*other, 2])]
    assert found[0] >= 9
    assert found[1] >= 9


def test_a_block_that_was_handed_out_anew_is_forgotten():
    calls = Calls(num_blocks=3)
    calls.compute(TEXT[:10])
    calls.compute([7] * (3 * BLOCK_TOKENS))
    assert calls.compute(TEXT[:10]) == 0
    assert calls.tails.num_evicted >= 1


@pytest.mark.parametrize("in_use", [False, True])
def test_a_tail_that_has_been_replaced_is_reused_first(in_use):
    calls = Calls(num_blocks=4)
    calls.compute(TEXT[:10])
    (tail,) = (block for block in calls.pool.blocks if block.block_hash == TAIL)
    if in_use:
        calls.pool.touch([tail])
    calls.compute(TEXT[:15])
    assert tail.block_hash is None
    if in_use:
        calls.pool.free_blocks([tail])
    assert calls.pool.free[0] == tail.block_id

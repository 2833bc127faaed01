"""Which blocks a call goes on in the middle of. vLLM's block pool is scripted here; the real one is
behind ``tests/conformance``."""

from dataclasses import dataclass

from specmesh.decoding.prefix import SALT_BYTES, PrefixChain
from specmesh.inference.models.vllm.tails import TAIL, Beginning, Tails

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


@dataclass
class Begun:
    """A call under way."""

    chain: PrefixChain
    blocks: list[Block]
    num_sure: int
    source: Beginning | None = None


class Calls:
    """Calls, one after the other, as the scheduler has them."""

    def __init__(self, num_blocks=20):
        self.pool = Pool(num_blocks)
        self.tails = Tails(self.pool, BLOCK_TOKENS)
        self.num_taken_over = 0

    def compute(self, tokens, salt=b"", start=0, num_drafted=0) -> int:
        """Computes ``tokens``, the last of which are a draft; how many of those from ``start`` on
        were there."""
        begun = self.begin(tokens, salt, start, num_drafted)
        self.end(begun)
        return begun.source.num_shared if begun.source else 0

    def begin(self, tokens, salt=b"", start=0, num_drafted=0):
        """A call that has its blocks; those before ``start`` are blocks of its own here."""
        chain = PrefixChain(tokens, salt)
        found = self.tails.find(chain, start, len(chain) - 1)
        num_blocks = -(-len(chain) // BLOCK_TOKENS)
        if found is None:
            return Begun(chain, self.pool.get_new_blocks(num_blocks), len(chain) - num_drafted)
        before = self.pool.get_new_blocks(start // BLOCK_TOKENS)
        self.pool.touch([found.block])
        if self.tails.take_over(found, chain):
            self.num_taken_over += 1
            within = [found.block]
        else:
            within = self.pool.get_new_blocks(1)
            self.pool.free_blocks([found.block])  # once it has been copied
        rest = self.pool.get_new_blocks(num_blocks - len(before) - 1)
        blocks = [*before, *within, *rest]
        return Begun(chain, blocks, len(chain) - num_drafted, found)

    def end(self, begun):
        """Leave the blocks to others."""
        for block in begun.blocks[: len(begun.chain) // BLOCK_TOKENS]:
            block.block_hash = b"full"  # as vLLM has it
        self.tails.keep(begun.blocks, begun.chain, begun.num_sure, begun.source)
        self.pool.free_blocks(reversed(begun.blocks))

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
        calls.compute([*TEXT[:length], 1, 2, 3], num_drafted=3)
    assert calls.kept() == 1
    assert calls.num_taken_over == 23
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
    calls.compute(TEXT[:9])
    for length in range(10, 13):
        calls.compute(one[:length], num_drafted=1)
        calls.compute(other[:length], num_drafted=1)
    found = [calls.compute([*one, 1]), calls.compute([*other, 2])]
    assert found == [12, 12]
    assert calls.kept() == 2


def test_a_block_that_was_handed_out_anew_is_forgotten():
    calls = Calls(num_blocks=3)
    calls.compute(TEXT[:10])
    calls.compute([7] * (3 * BLOCK_TOKENS))
    assert calls.compute(TEXT[:10]) == 0
    assert calls.tails.num_evicted >= 1


def test_a_tail_that_nobody_uses_is_written_on_in():
    calls = Calls()
    calls.compute(TEXT[:10])
    (tail,) = (block for block in calls.pool.blocks if block.block_hash == TAIL)
    begun = calls.begin(TEXT[:40])
    assert begun.blocks[0] is tail
    assert tail.block_hash is None  # until vLLM gives it that of a full block
    assert calls.tails.find(PrefixChain(TEXT[:12]), 0, 11) == Beginning(tail, 0, 10)
    calls.end(begun)
    assert calls.kept() == 1
    assert calls.compute(TEXT[:BLOCK_TOKENS]) == BLOCK_TOKENS - 1


def test_what_a_shorter_call_writes_again_costs_nothing_behind_it():
    calls = Calls()
    calls.compute(TEXT[:20])
    begun = calls.begin(TEXT[:10])
    assert calls.num_taken_over == 1
    assert calls.tails.find(PrefixChain(TEXT[:25]), 0, 24) == Beginning(begun.blocks[0], 0, 20)


def test_a_tail_that_is_no_draft_is_copied_by_those_who_part_from_it():
    calls = Calls()
    calls.compute(TEXT[:20], num_drafted=4)
    calls.compute([*TEXT[:15], 7, 7])
    assert calls.num_taken_over == 0
    assert calls.compute(TEXT[:20]) == 19


def test_a_tail_in_use_is_copied_and_reused_first_once_it_is_free():
    calls = Calls(num_blocks=4)
    calls.compute(TEXT[:10])
    (tail,) = (block for block in calls.pool.blocks if block.block_hash == TAIL)
    calls.pool.touch([tail])
    calls.compute(TEXT[:15])
    assert calls.num_taken_over == 0
    assert tail.block_hash is None
    calls.pool.free_blocks([tail])
    assert calls.pool.free[0] == tail.block_id


def held(calls, begun):
    """The blocks of a call that has ended and whose request stays."""
    blocks = begun.blocks
    calls.pool.touch(blocks)
    calls.end(begun)
    return blocks


def test_a_request_writes_over_its_rejected_draft():
    calls = Calls()
    blocks = held(calls, calls.begin([*TEXT[:30], 1, 2, 3], num_drafted=3))
    source = calls.tails.write_over(blocks, num_kept=29, num_shared=30)
    assert source == Beginning(blocks[0], 0, 29)
    assert [block.block_hash for block in blocks] == [None, None]
    assert calls.tails.find(PrefixChain([*TEXT[:30], 1, 2]), 0, 31) == Beginning(blocks[0], 0, 30)
    calls.tails.keep(blocks, PrefixChain(TEXT[:31]), 31, source)
    assert calls.tails.find(PrefixChain(TEXT[:40]), 0, 39) == Beginning(blocks[0], 0, 31)


def test_blocks_before_what_is_written_over_stay_as_they_are():
    calls = Calls()
    blocks = held(calls, calls.begin([*TEXT[:66], 1], num_drafted=1))
    assert calls.tails.write_over(blocks, num_kept=64, num_shared=64) is None
    assert [block.block_hash for block in blocks] == [b"full", b"full", None]
    assert calls.tails.find(PrefixChain(TEXT[:70]), 64, 69) is None
    assert calls.tails.find(PrefixChain(TEXT[:64]), 32, 63) == Beginning(blocks[1], 32, 31)

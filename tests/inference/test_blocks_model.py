"""Random histories of sequences, against a store that remembers which token was written where."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from specmesh.decoding.prefix import BLOCK_TOKENS, PrefixChain
from specmesh.inference.engine.blocks import pool, recent_tables, usage
from specmesh.inference.engine.blocks.pool import BlockPool, BlockTable, NoRoom, TooLarge

NUM_BLOCKS = 9
ANY = st.integers(0, 10**6)
# Few tokens, so that prefixes meet; lengths that often end a block.
EXTENSIONS = st.lists(st.integers(0, 1), max_size=20) | st.sampled_from([[0] * 16, [0] * 32])


def num_common(tokens: list[int], others: list[int]) -> int:
    pairs = enumerate(zip(tokens, others, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(tokens), len(others)))


@dataclass
class Sequence:
    table: BlockTable
    tokens: list[int]
    """The prefix and what was accepted after it."""
    capacity: int
    num_prefix: int
    num_written: int
    """Tokens whose KV is there."""
    copied: bool = False
    refers_to_source: bool = True

    @property
    def prefilled(self) -> bool:
        return self.num_written >= self.num_prefix

    def slot(self, index: int) -> int:
        return self.table.blocks[index // BLOCK_TOKENS] * BLOCK_TOKENS + index % BLOCK_TOKENS

    def referred(self) -> set[int]:
        sources = [source for source, _, _ in self.table.copies] if self.refers_to_source else []
        return {*self.table.blocks, *sources}


class BlockMachine(RuleBasedStateMachine):
    """Sequences fill in their prefixes, grow trees, accept nodes, publish and close."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(NUM_BLOCKS)
        self.store: list[int | None] = [None] * NUM_BLOCKS * BLOCK_TOKENS
        self.sequences: list[Sequence] = []
        self.known: list[list[int]] = [[]]
        self.registered: list[list[int]] = []  # token lists that were closed or published
        self.garbage = count(-1, -1)

    def teardown(self) -> None:
        while self.sequences:
            self.close_unchanged(0)
            self.tables_hold_their_tokens()
        assert self.pool.num_used == self.pool.num_shared == 0
        assert self.pool.num_free + self.pool.num_cached == NUM_BLOCKS
        everything = self.pool.open(PrefixChain([99]), NUM_BLOCKS * BLOCK_TOKENS - 1)
        assert sorted(everything.blocks) == list(range(NUM_BLOCKS))

    def state(self) -> tuple[object, ...]:
        pool, registry = self.pool, self.pool._registry
        return (
            (pool.num_evicted, pool.num_looked_up_tokens, pool.num_hit_tokens),
            (list(pool._usage._free), pool.num_cached),
            (pool._usage._references.tolist(), [held > 0 for held in pool._usage._held_since]),
            (dict(registry._entries), dict(registry._by_digest)),
            {parent: list(children) for parent, children in registry._children.items()},
        )

    def num_free_of(self, tokens: list[int]) -> int:
        """Blocks for a table of ``tokens`` beyond those that others use and it can't share."""
        used = Counter(block for s in self.sequences for block in s.referred())
        shared = self.pool._registry.leading(PrefixChain(tokens), 0, len(tokens) - 1)
        return NUM_BLOCKS - len(used.keys() - set(shared))

    def longest_held(self, tokens: list[int]) -> int:
        """How many of ``tokens`` any registered block and its parents begin with."""
        registry = self.pool._registry
        longest = 0
        for entry in registry._entries.values():
            held, parent = list(entry.tokens), entry.parent
            while parent:
                before = registry._entries[registry._by_digest[parent]]
                held, parent = [*before.tokens, *held], before.parent
            longest = max(longest, num_common(held, tokens))
        return longest

    @rule(which=ANY, cut=st.none() | ANY, more=EXTENSIONS, room=st.integers(0, 20))
    def open(self, which: int, cut: int | None, more: list[int], room: int) -> None:
        """A prefix that begins as one that was there before."""
        origin = self.known[which % len(self.known)]
        kept = origin if cut is None else origin[: cut % (len(origin) + 1)]
        tokens = [*kept, *more] or [0]
        num_blocks = -(-(len(tokens) + room) // BLOCK_TOKENS)
        before, num_possible = self.state(), self.num_free_of(tokens)
        longest = self.longest_held(tokens[:-1])
        try:
            table = self.pool.open(PrefixChain(tokens), room)
        except TooLarge:
            assert num_blocks > NUM_BLOCKS
            assert self.state() == before
            return
        except NoRoom:
            assert num_possible < num_blocks <= NUM_BLOCKS
            assert self.state() == before
            return
        assert num_blocks <= num_possible
        assert len(set(table.blocks)) == len(table.blocks) == num_blocks
        if num_possible > num_blocks:
            assert table.num_cached == longest
        else:  # the block to copy from may have been needed itself
            assert table.num_cached in (longest, longest // BLOCK_TOKENS * BLOCK_TOKENS)
        if not self.pool.num_evicted:
            common = [num_common(tokens[:-1], others) for others in self.registered]
            assert table.num_cached >= max(common, default=0) // BLOCK_TOKENS * BLOCK_TOKENS
        self.known.append(tokens)
        self.sequences.append(
            Sequence(table, tokens, len(tokens) + room, len(tokens), table.num_cached)
        )

    @precondition(lambda self: self.sequences)
    @rule(which=ANY, chunk=st.integers(1, 40))
    def forward(self, which: int, chunk: int) -> None:
        """Part of the prefix, or all of it and a tree below it; in any order of sequences."""
        sequence = self.sequences[which % len(self.sequences)]
        if not sequence.copied:
            for source, target, num_tokens in sequence.table.copies:
                for offset in range(num_tokens):
                    read = source * BLOCK_TOKENS + offset
                    self.store[target * BLOCK_TOKENS + offset] = self.store[read]
            sequence.copied = True
        end = min(len(sequence.tokens), sequence.num_written + chunk)
        for index in range(sequence.num_written, end):
            self.store[sequence.slot(index)] = sequence.tokens[index]
        sequence.num_written = end
        if sequence.prefilled:
            for index in range(end, sequence.capacity):
                self.store[sequence.slot(index)] = next(self.garbage)

    @precondition(lambda self: any(s.copied and s.prefilled for s in self.sequences))
    @rule(which=ANY, accepted=st.lists(st.integers(0, 1), min_size=1, max_size=8))
    def accept(self, which: int, accepted: list[int]) -> None:
        """Accepted nodes are moved to the front of the tree's slots."""
        ready = [s for s in self.sequences if s.copied and s.prefilled]
        sequence = ready[which % len(ready)]
        for token in accepted[: sequence.capacity - len(sequence.tokens)]:
            self.store[sequence.slot(len(sequence.tokens))] = token
            sequence.tokens.append(token)
        sequence.num_written = len(sequence.tokens)

    @precondition(lambda self: any(s.copied for s in self.sequences))
    @rule(which=ANY)
    def publish(self, which: int) -> None:
        ready = [s for s in self.sequences if s.copied]
        sequence = ready[which % len(ready)]
        before = sequence.table.blocks.tolist()
        written = sequence.tokens[: sequence.num_written]
        self.pool.publish(sequence.table, PrefixChain(written))
        assert sequence.table.blocks.tolist() == before
        sequence.refers_to_source = False

    @precondition(lambda self: any(s.copied for s in self.sequences))
    @rule(which=ANY)
    def close(self, which: int) -> None:
        ready = [s for s in self.sequences if s.copied]
        sequence = ready[which % len(ready)]
        self.sequences.remove(sequence)
        written = sequence.tokens[: sequence.num_written]
        self.pool.close(sequence.table, PrefixChain(written))
        self.known.append(written)
        self.registered.append(written)

    @precondition(lambda self: self.sequences)
    @rule(which=ANY)
    def close_unchanged(self, which: int) -> None:
        """A call that was cancelled before or in its first forward."""
        sequence = self.sequences.pop(which % len(self.sequences))
        self.pool.close(sequence.table, None)

    @rule(which=ANY)
    def find_base(self, which: int) -> None:
        tokens = self.known[which % len(self.known)]
        length, digest = PrefixChain(tokens).base()
        base = self.pool.find_base(length, digest)
        if base is None:
            assert self.pool.num_evicted or tokens not in self.registered
        else:
            assert list(base) == tokens[:length]
            assert base.base() == (length, digest)

    @invariant()
    def tables_hold_their_tokens(self) -> None:
        for sequence in self.sequences:
            if sequence.copied:
                read = [self.store[sequence.slot(i)] for i in range(sequence.num_written)]
                assert read == sequence.tokens[: sequence.num_written]

    @invariant()
    def registered_blocks_hold_what_they_are_registered_for(self) -> None:
        registry = self.pool._registry
        for block, entry in registry._entries.items():
            start = block * BLOCK_TOKENS
            assert self.store[start : start + len(entry.tokens)] == list(entry.tokens)
            assert not entry.parent or entry.parent in registry._by_digest

    @invariant()
    def blocks_are_used_or_cached_or_free(self) -> None:
        used = Counter(block for s in self.sequences for block in s.referred())
        assert self.pool.num_used == len(used)
        assert self.pool.num_shared == sum(number > 1 for number in used.values())
        usage = self.pool._usage
        held = {block for block in range(NUM_BLOCKS) if usage.held_since(block)}
        assert held == set(self.pool._registry._entries)
        assert self.pool.num_cached == len(held - set(used))
        assert {*used, *held, *usage._free} == set(range(NUM_BLOCKS))


@pytest.mark.parametrize("few", [usage._FEW, 0], ids=["one by one", "in arrays"])
def test_any_history_keeps_sequences_apart(monkeypatch, few):
    monkeypatch.setattr(usage, "_FEW", few)
    for module in (pool, recent_tables):
        monkeypatch.setattr(module, "MIN_BLOCKS", 1)
    monkeypatch.setattr(recent_tables, "MAX_TABLES", 4)
    run_state_machine_as_test(
        BlockMachine, settings=settings(max_examples=50, stateful_step_count=50, deadline=None)
    )

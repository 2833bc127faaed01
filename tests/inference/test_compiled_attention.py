"""Attention by compiled code against PyTorch's, in float64, to the keys that are attended to."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.inference.engine.batch import Group
from specmesh.inference.engine.kv_store import KVShape, KVStore
from specmesh.inference.models.cpu import attention_kernel
from specmesh.inference.models.cpu.attention import CompiledAttention, is_compiled

pytestmark = [pytest.mark.numbers, pytest.mark.cpu_only("it is for the CPU")]

CHUNK = attention_kernel._CHUNK_BLOCKS * BLOCK_TOKENS
LAYER = 1
TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 1e-2}


class Case:
    """A group of sequences of ``lengths`` in shuffled blocks, their random KV and queries."""

    def __init__(self, lengths, *, width=1, kv_heads=2, shared=3, head_dim=48, seed=0, **options):
        dtype = options.get("dtype", torch.float32)
        self.rng = np.random.default_rng(seed)
        torch.manual_seed(seed)
        self.lengths = np.array(sorted(lengths, reverse=True))
        self.width, self.shared, self.heads = width, shared, kv_heads * shared
        num_blocks = -(-int(self.lengths[0]) // BLOCK_TOKENS)
        shape = KVShape(LAYER + 1, kv_heads, head_dim, dtype)
        self.store = KVStore(shape, len(lengths) * num_blocks, torch.device("cpu"))
        self.store.kv.copy_(torch.randn(self.store.kv.shape))
        self.blocks = self.rng.permutation(len(lengths) * num_blocks).reshape(len(lengths), -1)
        self.mask = None
        if options.get("masked", width > 1):
            self.mask = np.zeros((len(lengths), width, int(self.lengths[0])), np.bool_)
            for row, length in enumerate(self.lengths):
                self.mask[row, :, :length] = True
                own = self.rng.random((width, width)) < 0.5
                self.mask[row, :, length - width : length] = own | np.eye(width, dtype=np.bool_)
        # As a model's layers give it: tokens apart, heads together.
        query = torch.randn(1, len(lengths) * width, self.heads, head_dim)
        self.query = query.to(dtype).transpose(1, 2)
        self.group = Group(0, width, self.lengths, self.blocks, self.mask)
        self.scale = head_dim**-0.5

    def attended(self, skipped=0):
        """What compiled code says."""
        attention = CompiledAttention(self.store, self.group, self.heads, skipped)
        assert attention.tokens == slice(0, len(self.lengths) * self.width)
        return attention(LAYER, self.query, self.scale)

    def expected(self, skipped=0):
        """What PyTorch says in float64 of each sequence by itself."""
        results = []
        for row, length in enumerate(self.lengths):
            slots = (self.blocks[row][:, None] * BLOCK_TOKENS + np.arange(BLOCK_TOKENS)).reshape(-1)
            keys, values = (
                self.store.kv[2 * LAYER + each, torch.from_numpy(slots[skipped:length])]
                .double()
                .transpose(0, 1)
                .repeat_interleave(self.shared, 0)
                for each in (0, 1)
            )
            tokens = slice(row * self.width, (row + 1) * self.width)
            mask = None
            if self.mask is not None:
                mask = torch.from_numpy(self.mask[row, :, skipped:length])
            result = scaled_dot_product_attention(
                self.query[0, :, tokens].double(), keys, values, attn_mask=mask, scale=self.scale
            )
            results.append(result.transpose(0, 1))
        return torch.cat(results)[None]

    def check(self, skipped=0):
        tolerance = TOLERANCES[self.store.kv.dtype]
        got = self.attended(skipped)
        assert got.dtype == self.store.kv.dtype
        torch.testing.assert_close(
            got.double(), self.expected(skipped), rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("dtype", TOLERANCES)
@settings(deadline=None, max_examples=40)
@given(
    lengths=st.lists(st.integers(9, 90), min_size=1, max_size=5),
    width=st.integers(1, 8),
    kv_heads=st.integers(1, 4),
    shared=st.integers(1, 4),
    skipped=st.integers(0, 1),
    seed=st.integers(0, 1 << 30),
)
def test_any_group_attends_as_its_sequences_alone(
    dtype, lengths, width, kv_heads, shared, skipped, seed
):
    case = Case(lengths, width=width, kv_heads=kv_heads, shared=shared, dtype=dtype, seed=seed)
    case.check(skipped)


@pytest.mark.parametrize("length", [1, 15, 16, 17, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 20])
def test_chunks_of_any_number_are_merged(length):
    Case([length, max(1, length // 2)]).check()


@pytest.mark.parametrize("skipped", [0, 1])
@pytest.mark.parametrize(
    ("lengths", "width"), [((CHUNK + 3, CHUNK - 1, CHUNK), 3), ((2 * CHUNK + 1, 5), 4)]
)
def test_masks_hold_across_chunks(lengths, width, skipped):
    Case(lengths, width=width).check(skipped)


def test_scores_whose_exponentials_overflow_are_no_trouble():
    case = Case([2 * CHUNK + 5])
    case.query *= 300
    case.check()


def test_what_lies_beyond_a_sequence_is_not_read():
    case = Case([35, 20, 17])
    expected = case.expected()
    used = np.zeros(case.store.kv.shape[1], np.bool_)
    for blocks, length in zip(case.blocks, case.lengths, strict=True):
        slots = (blocks[:, None] * BLOCK_TOKENS + np.arange(BLOCK_TOKENS)).reshape(-1)
        used[slots[:length]] = True
    case.store.kv[:, torch.from_numpy(~used)] = math.nan
    torch.testing.assert_close(case.attended().double(), expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(("slot", "count"), [(0, BLOCK_TOKENS), (5, 1), (1030, 1)])
def test_what_is_not_a_number_stays_its_own_sequences(slot, count):
    case = Case([CHUNK + 30, CHUNK + 20])
    for each in range(slot, slot + count):
        block = int(case.blocks[1, each // BLOCK_TOKENS])
        case.store.kv[2 * LAYER, block * BLOCK_TOKENS + each % BLOCK_TOKENS] = math.nan
    got = case.attended()
    assert not got[:, 0].isnan().any()
    assert got[:, 1].isnan().all()


def test_queries_of_another_shape_are_refused():
    case = Case([40, 30])
    attention = CompiledAttention(case.store, case.group, case.heads, 0)
    with pytest.raises(ValueError, match="layer 1 has queries of another shape"):
        attention(LAYER, case.query[:, 1:], case.scale)
    case.group.lengths.dtype = np.dtype(">i8")
    with pytest.raises(ValueError, match="is not contiguous int64"):
        CompiledAttention(case.store, case.group, case.heads, 0)


def test_a_lone_query_may_have_any_strides():
    case = Case([40], kv_heads=1, shared=1)
    case.query = case.query.as_strided(case.query.shape, (48, 1, 1, 1))
    case.check()


def test_what_was_not_computed_is_no_answer(monkeypatch):
    case = Case([40, 30])
    attention = CompiledAttention(case.store, case.group, case.heads, 0)
    monkeypatch.setattr(attention, "_run", lambda _: None)  # as where no thread has memory
    with pytest.raises(MemoryError):
        attention(LAYER, case.query, case.scale)


@pytest.mark.parametrize("num_threads", [1, 3])
def test_numbers_do_not_depend_on_threads_or_other_sequences(num_threads):
    lengths = [70, 50, 33, 20]
    case = Case(lengths, kv_heads=4)
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        together = case.attended()
        for row, length in enumerate(lengths):
            group = Group(0, 1, np.array([length]), case.blocks[row : row + 1].copy(), None)
            alone = CompiledAttention(case.store, group, case.heads, 0)
            query = case.query[:, :, row : row + 1]
            assert torch.equal(alone(LAYER, query, case.scale)[0, 0], together[0, row])
    finally:
        torch.set_num_threads(before)


def test_only_few_rows_are_compiled():
    case = Case([40, 40])
    assert is_compiled(case.store, case.group, 24 * 2)
    assert not is_compiled(case.store, case.group, 25 * 2)
    assert not is_compiled(case.store, case.group, 7)
    for shape in (KVShape(1, 2, 48, torch.float16), KVShape(1, 2, 40, torch.float32)):
        assert not is_compiled(KVStore(shape, 3, torch.device("cpu")), case.group, 2)

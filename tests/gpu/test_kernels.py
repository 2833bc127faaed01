"""The kernels compute what plain operations on a CPU do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.devices import device
from tests.inference.cuda import reference_kernels

from specmesh.decoding.noise import Purpose, stream_key
from specmesh.decoding.sampling import Sampling, choose
from specmesh.inference.engine.batch import BatchPart
from specmesh.inference.models.cuda.choice import own_tokens
from specmesh.inference.models.cuda.layout import lay_out
from specmesh.inference.models.cuda.linear import matvec
from specmesh.inference.models.cuda.paged_attention import paged_attention, tile_tokens
from specmesh.inference.models.cuda.wanted import COUPLED, GREEDY

assert reference_kernels  # which registers them

pytestmark = pytest.mark.gpu

NUM_SLOTS = 1 << 13
PADDING = 5
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2}
VOCAB_SIZE = 151_936

BATCHES = {
    "one token": [(1, 200)],
    "a long text": [(1, 3000)],
    "texts of many lengths": [(1, 17), (1, 1000), (1, 3), (1, 64)],
    "trees beside tokens": [(9, 150), (1, 33), (40, 90)],
    "a wide pass": [(70, 300), (50, 50)],
}
"""The numbers of new tokens and of all tokens of each sequence, by name."""


def tree_mask(rng: np.random.Generator, width: int, length: int) -> np.ndarray:
    """Any tree: each of the last ``width`` tokens hangs from one before it, or from the prefix."""
    mask = np.zeros((width, length), np.bool_)
    mask[:, : length - width] = True
    for node in range(width):
        parent = int(rng.integers(-1, node)) if node else -1
        if parent >= 0:
            mask[node] |= mask[parent]
        mask[node, length - width + node] = True
    return mask


def part(rng: np.random.Generator, free: list[int], width: int, length: int) -> BatchPart:
    blocks = np.array([free.pop() for _ in range(length // 16 + 1)])
    slots = [int(blocks[index // 16]) * 16 + index % 16 for index in range(length - width, length)]
    mask = None if width == 1 else tree_mask(rng, width, length)
    return BatchPart(
        range(width),
        range(length - width, length),
        slots,
        slots,
        range(width),
        blocks,
        length,
        mask,
    )


@pytest.mark.parametrize("heads", [(1, 5, 64), (8, 4, 128), (3, 3, 80), (1, 8, 256)], ids=str)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("batch", BATCHES)
def test_trees_attend_over_blocks_and_leave_their_keys_and_values(batch, dtype, heads):
    kv_heads, shared, head_dim = heads
    rng = np.random.default_rng(len(batch))
    generator = torch.Generator().manual_seed(len(batch))
    free = rng.permutation(NUM_SLOTS // 16).tolist()
    parts = [part(rng, free, *sizes) for sizes in BATCHES[batch]]
    used = sum(len(each.token_ids) for each in parts)
    count = used + PADDING
    layout = lay_out(parts, (), tile_tokens(count, shared))

    def padded(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(
            np.concatenate([array, np.zeros((PADDING, *array.shape[1:]), "i4")])
        )

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    bits = np.zeros((used, 8), np.int32)
    bits[:, : layout.bits.shape[1]] = layout.bits
    rows = (normal(1, count, n, head_dim) for n in (kv_heads * shared, kv_heads, kv_heads))
    inputs = [each.transpose(1, 2) for each in rows]
    inputs += [normal(2, NUM_SLOTS, kv_heads, head_dim), padded(layout.spans), padded(bits)]
    inputs += [padded(layout.tiles), padded(layout.sequences), torch.from_numpy(layout.tables)]
    inputs.append(torch.zeros(count * kv_heads, dtype=torch.int32))
    there = [each.to(device()) for each in inputs]
    exact = [each.double() if each.is_floating_point() else each for each in inputs]
    for _ in range(3):  # what one pass leaves in memory must not show in the next
        found = paged_attention(*there, 0.1)
    expected = paged_attention(*exact, 0.1)
    differ = (found.cpu().double() - expected)[0, :used].abs().max()
    assert differ < TOLERANCE[dtype]
    assert torch.equal(there[3].cpu().double(), exact[3])
    assert not there[-1].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_own_tokens_are_those_that_the_host_finds(dtype):
    rng = np.random.default_rng(1)
    logits = torch.from_numpy(3 * rng.normal(size=(48, VOCAB_SIZE))).to(dtype)
    logits[7, 5] = float("nan")
    logits[8, 9] = float("inf")
    kinds = np.tile([0, GREEDY, COUPLED, COUPLED], 12).astype(np.int32)
    seeds = [int(seed) for seed in rng.integers(0, 1 << 63, 48)]
    temperatures = rng.choice([1.0, 0.7, 0.1, 1e-3, 3.0], 48)
    keys = [stream_key(seed, number, Purpose.COUPLED) for number, seed in enumerate(seeds)]
    inputs = (kinds, np.array(keys, np.uint64).view(np.int64), temperatures)
    found = own_tokens(
        logits.to(device()), *(torch.from_numpy(each).to(device()) for each in inputs)
    )
    for number, (row, token) in enumerate(zip(logits.float().numpy(), found.tolist(), strict=True)):
        if not kinds[number] or number in {7, 8}:
            assert token == -1
        elif kinds[number] == GREEDY:
            assert token == row.argmax()
        elif token >= 0:  # else it is so close that the host decides
            sampling = Sampling(temperatures[number], seed=seeds[number])
            assert token == choose(row, sampling, number)
    assert (found[2::4] >= 0).sum() >= 10


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("size", [(7, 100), (960, 320), (4096, 4096), (5, 20_000)])
def test_a_weight_times_one_vector(size, dtype):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(*size, generator=generator).to(dtype)
    vector = torch.randn(size[1], generator=generator).to(dtype)
    found = matvec(weight.to(device()), vector.to(device())).cpu().double()
    expected = weight.double() @ vector.double()
    assert (found - expected).norm() < TOLERANCE[dtype] * expected.norm()

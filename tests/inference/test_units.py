"""How work is divided among processing units: names, shares, changes of speed."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from specmesh.decoding.trees.tree import TokenTree
from specmesh.inference.engine.batch import Group
from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.units.attention import SparsePart, merge
from specmesh.inference.models.units.crew import Crew
from specmesh.inference.models.units.members.slices import Layers, attend, blocks
from specmesh.inference.models.units.members.specs import UnitSpec, parse_units
from specmesh.inference.models.units.pattern import pattern_of
from specmesh.inference.models.units.plans.planner import ATTENTION, WINDOW, Planner, Work
from specmesh.inference.models.units.plans.shares import (
    Cost,
    Measured,
    alone,
    best_shares,
    even,
    ranges,
)
from specmesh.inference.models.units.whole import charge, without_gain

pytestmark = pytest.mark.cpu_only("parts of a forward pass on cores")


WORK = Work(320, 864)


def test_units_are_cores_ranges_of_cores_and_gpus():
    assert parse_units("cpu:0, cpu:2-4,cuda:1") == (
        UnitSpec("cpu", (0,)),
        UnitSpec("cpu", (2, 3, 4)),
        UnitSpec("cuda", (1,)),
    )
    assert [str(unit) for unit in parse_units("cpu:0,cpu:2-4,cuda:1")] == [
        "cpu:0",
        "cpu:2-4",
        "cuda:1",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cpu:0", "names one unit"),
        ("cuda:0,cpu:0", "begins with cuda:0"),
        ("cpu:0,gpu:1", "'gpu:1' is neither"),
        ("cpu:0,", "'' is neither"),
        ("cpu:0,cpu:3-2", "'cpu:3-2' ends before it begins"),
        ("cpu:0-2,cpu:2", "names cpu:2 twice"),
        ("cpu:0,cuda:0-1", "'cuda:0-1' is neither"),
    ],
)
def test_what_names_no_units_is_refused_with_the_part_that_is_wrong(text, problem):
    with pytest.raises(ValueError, match=problem):
        parse_units(text)


def test_units_that_are_not_here_are_refused_before_anything_starts():
    here = os.sched_getaffinity(0)
    with pytest.raises(ModelNotLoadable, match=f"--units: cpu:{max(here) + 1} is not among"):
        Crew(parse_units(f"cpu:{min(here)},cpu:{max(here) + 1}"))
    if not torch.cuda.is_available():
        with pytest.raises(ModelNotLoadable, match="--units: there is no cuda:0"):
            Crew(parse_units(f"cpu:{min(here)},cuda:0"))
    assert os.sched_getaffinity(0) == here


def measured(*whole_s, overheads=None, dividing_s=0.0):
    overheads = overheads or [0.0] * len(whole_s)
    return Measured(whole_s[0], tuple(map(Cost, whole_s, overheads)), dividing_s)


@pytest.mark.parametrize(
    ("costs", "shares"),
    [
        (measured(1, 1), (1 / 2, 1 / 2)),
        (measured(1, 2), (2 / 3, 1 / 3)),
        (measured(1, 1, 2), (0.4, 0.4, 0.2)),
        (measured(1, 1, overheads=[0.0, 0.2]), (0.6, 0.4)),
        (measured(1, 1, overheads=[0.2, 0.0]), (0.4, 0.6)),
        (measured(1, 1, overheads=[0.0, 2.0]), (1, 0)),
        (measured(1, 1, dividing_s=0.6), (1, 0)),
        (measured(1, math.inf), (1, 0)),
        (measured(4, 1, math.inf), (0.2, 0.8, 0)),
    ],
)
def test_shares_follow_speeds_and_what_dividing_costs(costs, shares):
    assert best_shares(costs) == pytest.approx(shares)


@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.floats(0, 2)), min_size=2, max_size=4),
    st.lists(st.floats(0, 1), min_size=4, max_size=4),
)
def test_no_other_shares_end_sooner(pairs, others):
    def ends_s(shares):
        return max(
            cost.overhead_s + share * cost.whole_s
            for cost, share in zip(costs, shares, strict=True)
            if share
        )

    costs = [Cost(*pair) for pair in pairs]
    best = best_shares(Measured(math.inf, tuple(costs), 0.0))
    assert sum(best) == pytest.approx(1)
    total = sum(others[: len(costs)])
    if total > 0:
        assert ends_s(best) <= ends_s([each / total for each in others[: len(costs)]]) * (1 + 1e-9)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any), st.integers(1, 300))
def test_ranges_follow_each_other_and_leave_nothing_out(weights, count):
    shares = tuple(weight / sum(weights) for weight in weights)
    found = ranges(shares, count)
    assert [index for each in found for index in each] == list(range(count))
    for share, each in zip(shares, found, strict=True):
        assert not each or share
        assert abs(len(each) - share * count) <= 16


@given(st.integers(1, 400), st.sampled_from([16, 112]), st.data())
def test_packed_columns_are_few_blocks_that_other_ranges_use_too(columns, granule, data):
    border = granule * data.draw(st.integers(0, columns // granule))
    found = [*blocks(0, border, granule), *blocks(border, columns, granule)]
    assert [index for block in found for index in range(*block)] == list(range(columns))
    for first, end in found:
        strips = -(-(end - first) // granule)
        assert first % (strips * granule) == 0
    assert len(found) <= 2 * (columns // granule + 1).bit_length()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tokens", [0, 1, 3, 4, 40])
def test_any_range_of_columns_is_the_same_as_of_the_whole_layer(dtype, tokens):
    torch.manual_seed(2)
    layers = Layers()
    weight, bias = torch.randn(1000, 1050).to(dtype), torch.randn(1000).to(dtype)
    layer = layers.add(weight, bias)
    inputs = torch.randn(tokens, 1050).to(dtype)
    want = inputs.double() @ weight.double().t() + bias.double()
    granule = layers.granule(layer, tokens)
    for border in (0, granule, 3 * granule, 1000):
        parts = [layers.part(layer, 0, border, inputs), layers.part(layer, border, 1000, inputs)]
        tolerance = 1e-3 if dtype == torch.float32 else 0.5
        torch.testing.assert_close(torch.cat(parts, 1).double(), want, atol=tolerance, rtol=0.01)


def planner():
    by_tokens = {1: measured(1e-4, 1e-4), 16: measured(1e-3, 1e-3)}
    return Planner({WORK: by_tokens, ATTENTION: {64: measured(1e-4, 1e-4)}}, 2)


def serve(plan, slowness, forwards):
    """Tell ``plan`` of forwards in which units are that much slower; how often it changed."""
    changes = 0
    for _ in range(forwards):
        shares = plan.shares(WORK, 16)
        expected = plan.expected_s(WORK, 16, shares)
        taken = [each * times for each, times in zip(expected, slowness, strict=True)]
        changes += plan.observe(taken, expected)
    return changes


def test_a_unit_that_becomes_slower_gets_less_and_its_share_back_when_it_recovers():
    plan = planner()
    assert serve(plan, (1, 1), 3 * WINDOW) == 0
    assert serve(plan, (1, 2), 2 * WINDOW) > 0
    assert serve(plan, (1, 2), 5 * WINDOW) == 0
    assert plan.shares(WORK, 16) == pytest.approx((2 / 3, 1 / 3))
    assert plan.shares(ATTENTION, 64) == pytest.approx((2 / 3, 1 / 3))
    assert serve(plan, (1, 1), 2 * WINDOW) > 0
    assert serve(plan, (1, 1), 5 * WINDOW) == 0
    assert plan.shares(WORK, 16) == pytest.approx((1 / 2, 1 / 2))


def test_small_changes_changes_of_all_units_and_single_forwards_change_nothing():
    plan = planner()
    assert serve(plan, (1, 1.08), 5 * WINDOW) == 0
    assert serve(plan, (3, 3), 5 * WINDOW) == 0
    for _ in range(5):
        assert serve(plan, (1, 1), WINDOW) == 0
        assert serve(plan, (1, 50), WINDOW // 4) == 0


def test_a_unit_without_a_part_is_tried_again_in_time():
    plan = Planner({WORK: {16: measured(1e-3, 1e-3, dividing_s=3e-4)}}, 2)
    serve(plan, (1, 5), 2 * WINDOW)
    assert plan.shares(WORK, 16) == alone(2)
    serve(plan, (1, 1), 400)
    assert plan.shares(WORK, 16)[1] > 0.3


OTHER = Work(320, 64)


def promising():
    """A layer that gains 0.4 ms by being divided, and one that gains 0.02."""
    small = measured(1e-4, 1e-4, dividing_s=3e-5)
    return {WORK: {16: measured(1e-3, 1e-3, dividing_s=1e-4)}, OTHER: {16: small}}


@pytest.mark.parametrize(
    ("divided_s", "divided"),
    [
        (5.6e-3, {WORK, OTHER}),  # as promised: 10 layers of 0.4 ms, 20 of 0.02
        (5.4e-3, {WORK, OTHER}),  # better
        (6.1e-3, {WORK, OTHER}),  # a loss of 0.017 ms at each layer
        (7e-3, {WORK}),  # 0.047 ms
        (10e-3, {WORK}),
        (23e-3, set()),
    ],
)
def test_what_a_whole_forward_loses_is_charged_to_each_layer_that_is_divided(divided_s, divided):
    before = promising()
    after = charge(before, {WORK: 10, OTHER: 20}, 16, alone_s=10e-3, divided_s=divided_s)
    plan = Planner(after, 2)
    assert {work for work in after if plan.shares(work, 16) != alone(2)} == divided
    assert before == promising()


def test_what_gains_nothing_is_not_divided():
    plan = Planner(without_gain(promising(), {WORK: 10, OTHER: 20}, 16), 2)
    assert {plan.shares(work, 16) for work in promising()} == {alone(2)}


def test_a_forward_of_which_nothing_is_divided_is_charged_nothing():
    alone_is_best = {WORK: {16: measured(1e-3, 1e-3, dividing_s=1)}}
    assert charge(alone_is_best, {WORK: 10}, 16, alone_s=10e-3, divided_s=11e-3) == alone_is_best


def test_work_of_an_unmeasured_size_is_divided_as_the_nearest():
    plan = Planner({WORK: {1: measured(1, math.inf), 64: measured(1, 1)}}, 2)
    assert plan.shares(WORK, 3) == alone(2)
    assert plan.shares(WORK, 500) == even(2)


def group_of(tree, prefix, pending=1):
    """The attention of a tree whose prefix lacks its last ``pending`` tokens."""
    width, length = pending + len(tree), prefix + len(tree)
    attends = np.arange(length) <= np.arange(length - width, length)[:, None]
    attends[pending:, prefix:] = False
    for node in range(1, len(tree) + 1):
        attends[pending + node - 1, [prefix + each - 1 for each in tree.path(node)]] = True
    return Group(0, width, np.array([length]), np.zeros((1, 1), np.int64), attends[None])


def random_tree(rng, size):
    return TokenTree(tuple(range(size)), tuple(int(rng.integers(0, n + 1)) for n in range(size)))


@settings(deadline=None)
@given(st.integers(1, 20), st.integers(1, 40), st.integers(1, 5), st.integers(0, 1 << 30))
def test_the_dense_and_the_sparse_part_are_all_that_is_attended_to(size, prefix, pending, seed):
    pending = min(pending, prefix)
    group = group_of(random_tree(np.random.default_rng(seed), size), prefix, pending)
    pattern = pattern_of(group)
    attends = np.zeros_like(group.attention_mask[0])
    attends[:, : pattern.committed] = True
    if pattern.mask is not None:
        attends[:, pattern.committed :] = pattern.mask
    if pattern.ancestors is not None:
        for row, (keys, unused) in enumerate(
            zip(pattern.ancestors.keys, pattern.ancestors.unused, strict=True)
        ):
            attends[row, keys[~unused]] = True
            assert set(keys[unused]) <= set(keys[~unused])
    np.testing.assert_array_equal(attends, group.attention_mask[0])
    assert pattern.committed in (prefix - pending, prefix - pending + 1, prefix)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_parts_merged_by_online_softmax_are_attention_to_all_keys(dtype):
    rng = np.random.default_rng(1)
    torch.manual_seed(1)
    prefix, kv_heads, shared, head_dim = 37, 2, 3, 8
    group = group_of(random_tree(rng, 15), prefix)
    pattern = pattern_of(group)
    assert pattern.ancestors is not None
    # Some scores are so large that their exponentials overflow.
    query = (20 * torch.randn(1, kv_heads, shared * group.width, head_dim)).to(dtype)
    kv = torch.randn(2, group.length, kv_heads, head_dim).to(dtype)
    keys, values = kv.transpose(1, 2)[:, None].unbind(0)
    parts = [
        attend(query, keys[:, :, first:end], values[:, :, first:end], 1.0)
        for first, end in ((0, 10), (10, pattern.committed))
    ]
    sparse = SparsePart(pattern.ancestors, torch.arange(group.length))
    merged = merge([*parts, sparse(kv, 0, query, 1.0)])
    mask = torch.from_numpy(group.attention_mask).repeat(1, shared, 1)[None]
    want = scaled_dot_product_attention(
        query.double(), keys.double(), values.double(), attn_mask=mask, scale=1.0
    )
    # An error of a score is a relative one of its weight; scores are sums of such products.
    sums = (query.abs().double() @ keys.abs().double().transpose(-1, -2)).max()
    relative = torch.finfo(torch.float32).eps * float(head_dim * sums + group.length)
    relative += torch.finfo(dtype).eps  # results are rounded
    tolerance = relative * float(values.abs().max())
    torch.testing.assert_close(merged.double(), want, atol=tolerance, rtol=0)

"""What is concluded from the runs with trees."""

from dataclasses import asdict, replace

import pytest
from tests.bench.test_lookahead import plain, run

from specmesh.bench.tree import rows, speculations
from specmesh.orchestrator.strategies.options import StrategyOptions
from specmesh.tools.kit.experiment import HEADS, HEADS_AND_DRAFTER, SPECULATIVE, TREE, Speculation


def tree(prompt, width, seconds, **changes):
    options = StrategyOptions(width=width)
    made = run(prompt, None, seconds, strategy=TREE, **changes)
    return replace(made, speculation=Speculation(TREE, options))


RUNS = [
    *(plain(0, 2.0), plain(1, 2.0), plain(2, 2.0)),
    *(run(0, None, 1.0), run(1, None, 1.0), run(2, None, 1.0)),
    *(tree(0, None, 0.5), tree(1, None, 0.8), tree(2, None, 4.0)),
    *(tree(0, 8, 2.0), tree(1, 8, 2.0, token_ids=(1, 2, 3, 9)), tree(2, 8, 2.0)),
]


def test_every_way_of_decoding_is_a_row_beside_the_target_alone():
    found = rows(RUNS, "small")
    assert [(row.strategy, row.drafter, row.width) for row in found] == [
        ("autoregressive", None, None),
        (SPECULATIVE, "small", None),
        (TREE, "small", None),
        (TREE, "small", 8),
    ]
    assert [row.ratio for row in found] == pytest.approx([1.0, 2.0, 2.5, 1.0])  # medians
    assert found[2].tokens_per_s == pytest.approx(12 / 5.3)
    assert (found[2].drafted_per_call, found[2].accepted_per_call) == (3, 1)


def test_heads_are_a_drafter_of_their_own():
    runs = [*RUNS, *(replace(each, speculation=Speculation(HEADS)) for each in RUNS[6:9])]
    assert (rows(runs, "small")[-1].strategy, rows(runs, "small")[-1].drafter) == (HEADS, HEADS)
    merged = Speculation(HEADS_AND_DRAFTER)
    runs = [*RUNS, *(replace(each, speculation=merged) for each in RUNS[6:9])]
    assert rows(runs, "small")[-1].drafter == "heads, small"


def test_any_other_text_is_told():
    assert [row.identical for row in rows(RUNS, "small")] == [True, True, True, False]


def test_rows_have_what_machines_look_for():
    wanted = {"strategy", "drafter", "temperature", "width", "shape", "accepted_per_call"}
    wanted |= {"tokens_per_s", "ratio", "identical"}
    assert wanted <= set(asdict(rows(RUNS, "small")[0]))


def test_widths_are_run_beside_trees_that_are_as_wide_as_pays():
    def ways(*, with_heads):
        found = speculations((4, 16), ("grown", "calibrated"), with_heads=with_heads)
        return [(each.strategy, each.options.width, each.options.shape) for each in found]

    of_drafter = [
        ("autoregressive", None, None),
        (SPECULATIVE, None, None),
        (TREE, None, None),
        (TREE, 4, "grown"),
        (TREE, 4, "calibrated"),
        (TREE, 16, "grown"),
        (TREE, 16, "calibrated"),
    ]
    of_heads = [
        (name, width, None) for name in (HEADS, HEADS_AND_DRAFTER) for width in (None, 4, 16)
    ]
    assert ways(with_heads=False) == of_drafter
    assert ways(with_heads=True) == [*of_drafter, *of_heads]

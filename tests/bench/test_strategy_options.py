"""What ``-o`` tells which strategy."""

import pytest
import typer

from specmesh.orchestrator.strategies.options import StrategyOptions
from specmesh.tools.kit.strategy_options import read_options

CHOSEN = ("autoregressive", "speculative", "dsi", "branch-prediction")


def test_an_option_reaches_the_strategies_that_take_it():
    options = read_options(CHOSEN, ["num_branches=3", "lookahead=4"])
    assert options == {
        "autoregressive": StrategyOptions(),
        "speculative": StrategyOptions(lookahead=4),
        "dsi": StrategyOptions(lookahead=4),
        "branch-prediction": StrategyOptions(lookahead=4, num_branches=3),
    }


def test_of_two_values_the_last_counts_also_for_one_strategy_alone():
    options = read_options(("speculative", "dsi"), ["lookahead=4", "dsi.lookahead=6"])
    assert [options[each].lookahead for each in ("speculative", "dsi")] == [4, 6]


def test_without_options_each_strategy_chooses():
    assert read_options(CHOSEN, []) == dict.fromkeys(CHOSEN, StrategyOptions())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("luck=1", "'luck' is not a strategy option"),
        ("lookahead", "lookahead has no value: write lookahead=VALUE"),
        ("lookahead=x", "lookahead must be a whole number, not 'x'"),
        ("lookahead=0", r"lookahead must be in \[1, 64\]"),
        ("predictor=luck", "'luck' is not one of"),
        ("filter.lookahead=1", "'filter' is not one of: autoregressive, speculative, dsi"),
        ("autoregressive.lookahead=1", "lookahead is not an option of: autoregressive"),
        ("dsi.num_branches=1", "num_branches is not an option of: dsi"),
    ],
)
def test_what_is_no_option_is_refused(given, said):
    with pytest.raises(typer.BadParameter, match=said):
        read_options(CHOSEN, [given])

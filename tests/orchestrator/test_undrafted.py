"""A strategy that was asked for by name says why it has drafted next to nothing."""

from dataclasses import replace

import pytest

from specmesh.decoding.predict.acceptance_rate import HEADS_CHAIN
from specmesh.orchestrator.answers.undrafted import why_undrafted
from specmesh.orchestrator.driver.stats import RequestStats
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.commands import Commit
from specmesh.orchestrator.strategies.events import Capacity, Drafted

NAMED = STRATEGIES.keys() - {"auto", "autoregressive", "filter"}
DEAR = Capacity(target_s=0.01, drafter_s=0.008, heads_s=0.008, heads_depth=4)


def after(num_tokens, num_drafted=0):
    stats = RequestStats()
    stats.committed(Commit((5,) * num_tokens, num_accepted=0))
    drafted = (7,) * num_drafted
    stats.handled(Drafted(1, drafted, tuple(range(num_drafted)), {}, last=True))
    return stats


def why(name, capacity=DEAR, stats=None, goal=None):
    return why_undrafted(STRATEGIES[name], goal or Goal(64), capacity, stats or after(24))


@pytest.mark.parametrize("name", sorted(NAMED))
def test_every_strategy_that_drafts_says_why_it_does_not(name):
    assert why(name).startswith("no draft was expected to pay")


def test_the_reason_has_the_rate_and_the_price():
    goal = Goal(64)
    goal.acceptance.rate().learn([False] * 1000)
    assert "the drafter is right about 0 % of the time" in why("speculative", goal=goal)
    assert why("speculative").endswith("a draft token takes 1.8 times as long as one without")


def test_heads_have_a_rate_of_their_own():
    goal = Goal(64)
    goal.acceptance.rate(HEADS_CHAIN).learn([False] * 1000)
    assert "the heads are right about 0 % of the time" in why("heads", goal=goal)


@pytest.mark.parametrize("name", ["speculative", "heads"])
def test_a_price_that_is_unknown_is_said_to_be(name):
    unknown = replace(DEAR, target_s=None, knows_price=False)
    assert why(name, unknown) == "the price of a draft token is not known yet"


def test_a_mesh_without_anything_that_drafts_is_said_to_be_one():
    assert why("speculative", Capacity(drafters=())) == "no drafter was ready"
    assert why("heads", Capacity()) == "no replica with heads was ready"


@pytest.mark.parametrize(
    ("name", "stats", "goal"),
    [
        ("speculative", after(24, num_drafted=12), Goal(64)),
        ("speculative", after(2), Goal(64)),
        ("speculative", after(24), Goal(64, lookahead=4)),
        ("autoregressive", after(24), Goal(64)),
        ("filter", after(24), Goal(64)),
    ],
    ids=["has drafted", "had no time", "drafts anyway", "never drafts", "does not weigh it"],
)
def test_nothing_is_explained_where_there_is_nothing_to(name, stats, goal):
    assert not why(name, stats=stats, goal=goal)


def test_drafts_that_would_pay_have_failed_for_another_reason():
    assert not why("speculative", replace(DEAR, drafter_s=0.001))

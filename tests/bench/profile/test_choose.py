"""What is expected of ways of decoding, and which is chosen."""

from dataclasses import replace

import pytest

from specmesh.decoding.trees.tree import TokenTree
from specmesh.simulation.costs import Contention, Cores, Hop, Orchestrating
from specmesh.simulation.law import Law
from specmesh.simulation.sharing import core_share
from specmesh.tools.profile.choose import expectations, ways
from specmesh.tools.profile.predict import orchestrating, rounds_per_s, tokens_per_s
from specmesh.tools.profile.rounds import (
    AUTOREGRESSIVE_ROUND,
    ObservedRounds,
    ProfiledAcceptance,
    ProfiledCosts,
    ProfiledRound,
    Way,
    mean_round,
)
from specmesh.tools.profile.tries.orchestrated import promising

COSTS = ProfiledCosts(target=Law.fixed(40), drafters=(Law.fixed(4),), heads=Law.fixed(1))


def chain(length, tokens, temperature=0.0):
    way = Way("speculative", lookahead=length)
    return ProfiledAcceptance(
        way, temperature, tokens, nodes=length, levels=(2.0, *[1.0] * (length - 1))
    )


def observed(acceptance, streams, rounds_per_s, tries=10_000):
    seen = ObservedRounds(acceptance.way, acceptance.temperature, streams, rounds_per_s, tries)
    return acceptance, seen


def best(acceptances, costs, streams=1, temperature=0.0):
    found = expectations(acceptances, costs, streams=streams, temperature=temperature, context=100)
    return found[0].acceptance.way, {each.acceptance.way: each for each in found}


def test_one_stream_takes_what_its_steps_add_up_to():
    assert tokens_per_s(chain(5, 3.0), COSTS, 1, 100) == pytest.approx(3 / 0.060, rel=0.03)
    working = replace(chain(5, 3.0), strategy_ms=10.0)
    assert tokens_per_s(working, COSTS, 1, 100) == pytest.approx(3 / 0.070, rel=0.03)
    slower = replace(
        COSTS,
        orchestrating=(Orchestrating("speculative", 10, 10),),
        verify_hop=Hop(5, 1, 0),
        draft_hop=Hop(5, 0, 0),
    )
    assert tokens_per_s(chain(5, 3.0), slower, 1, 100) == pytest.approx(3 / 0.085, rel=0.03)


def test_the_target_alone_has_one_hop_for_all_tokens_of_a_call():
    far = replace(COSTS, verify_hop=Hop(40))
    for target_ms, tokens in ((10, 65), (200, 11)):  # at most 64 further ones, or two seconds
        costs = replace(far, target=Law.fixed(target_ms))
        expected = 1e3 / (target_ms + 40 / tokens)
        assert tokens_per_s(AUTOREGRESSIVE_ROUND, costs, 1, 100) == pytest.approx(
            expected, rel=0.03
        )
    assert best([chain(2, 1.9)], far)[0] == Way("autoregressive")


def test_heads_draft_on_the_target_after_its_verdict():
    heads = ProfiledAcceptance(Way("heads", 5, 5), 0.0, 3.0, nodes=5, levels=(1.0,) * 5)
    assert tokens_per_s(heads, COSTS, 1, 100) == pytest.approx(3 / 0.045, rel=0.03)


def test_a_level_that_half_of_the_rounds_reach_costs_half():
    costs = replace(COSTS, heads=Law.fixed(20))
    heads = ProfiledAcceptance(Way("heads", 2, 5), 0.0, 3.0, nodes=5, levels=(1.0, 0.5))
    assert tokens_per_s(heads, costs, 1, 100) == pytest.approx(3 / 0.070, rel=0.1)


def test_streams_share_forwards():
    alone = tokens_per_s(chain(5, 3.0), COSTS, 1, 100)
    assert tokens_per_s(chain(5, 3.0), COSTS, 8, 100) > 5 * alone  # a forward costs the same


def test_a_drafter_and_a_target_that_work_at_once_slow_each_other_down():
    contending = replace(COSTS, contention=Contention(2.0, 2.0))
    one, two = (tokens_per_s(chain(5, 3.0), contending, streams, 100) for streams in (1, 8))
    assert one == pytest.approx(tokens_per_s(chain(5, 3.0), COSTS, 1, 100))
    assert two < 0.9 * tokens_per_s(chain(5, 3.0), COSTS, 8, 100)


def test_services_on_one_core_share_it():
    together = {"target": Cores((0,)), "orchestrator": Cores((0,)), "drafter": Cores((1,))}
    everyone = set(together)
    assert core_share("target", everyone, together) == pytest.approx(1 / 2)
    assert core_share("target", {"target", "drafter"}, together) == 1
    assert core_share("drafter", everyone, together) == 1
    assert core_share("target", everyone, {}) == 1
    wide = {"target": Cores((0, 1, 2), threads=3), "orchestrator": Cores((2,))}
    assert core_share("target", set(wide), wide) == pytest.approx(3 / 4)


def test_streams_are_answered_no_faster_than_the_core_of_target_and_orchestrator_allows():
    shared = {"target": Cores((0,)), "orchestrator": Cores((0,)), "drafter": Cores((1,))}
    costs = replace(COSTS, orchestrating=(Orchestrating("speculative", 10, 10),))
    on_one = replace(costs, cores=shared)
    apart, together = (tokens_per_s(chain(1, 2.0), each, 8, 100) for each in (costs, on_one))
    assert apart == pytest.approx(2 / 0.010, rel=0.1)  # the orchestrator's 10 ms for each round
    # And, at best, 40 ms for a forward of all eight.
    assert 2 / 0.025 < together < 2 / 0.015
    one = tokens_per_s(chain(1, 2.0), on_one, 1, 100)
    assert one == pytest.approx(tokens_per_s(chain(1, 2.0), costs, 1, 100))  # they take turns


def test_what_an_orchestrator_takes_follows_from_rounds_that_it_made():
    drafted = chain(2, 1.5)
    seen = [
        observed(AUTOREGRESSIVE_ROUND, 1, 20),
        observed(AUTOREGRESSIVE_ROUND, 8, 50),
        observed(drafted, 1, 16),
        observed(drafted, 8, 30),
    ]
    alone, with_drafter = orchestrating(COSTS, seen, context=100)
    assert (alone.strategy, with_drafter.strategy) == ("autoregressive", "speculative")
    assert alone.one_ms == pytest.approx(10, rel=0.1)  # 50 ms a round, of which the target takes 40
    assert alone.many_ms == pytest.approx(20, rel=0.1)  # a round every 20 ms
    assert alone.ms(1) == alone.one_ms
    assert alone.ms(8) == alone.ms(64) == alone.many_ms
    costs = replace(COSTS, orchestrating=(alone, with_drafter))
    for streams, rounds in ((1, 16), (8, 30)):
        assert tokens_per_s(drafted, costs, streams, 100) == pytest.approx(1.5 * rounds, rel=0.05)


def test_one_way_of_each_strategy_at_each_temperature_stands_for_the_others():
    table = [chain(1, 1.7), chain(4, 2.8), chain(8, 3.0), chain(1, 1.7, 0.8), chain(4, 1.8, 0.8)]
    heads = ProfiledAcceptance(Way("heads", 5, 5), 0.0, 3.0, nodes=5, levels=(1.0,) * 5)
    assert promising([*table, heads], COSTS, context=100) == [table[1], table[3], heads]


def test_the_way_with_the_most_tokens_a_second_is_chosen():
    table = [chain(1, 1.7), chain(4, 2.8), chain(8, 3.0)]
    way, found = best(table, COSTS)
    assert way == Way("speculative", 4)  # 2.8 / 56, against 1.7 / 44, 3 / 72 and 1 / 40
    assert found[way].ratio == pytest.approx(2.8 / 56 * 40, rel=0.05)


def test_what_was_observed_of_a_way_overrules_the_times_of_its_steps():
    table = [chain(1, 1.7), chain(4, 2.8), chain(8, 3.0)]
    slower = {n: 0.5 * rounds_per_s(table[1], COSTS, n, 128) for n in (1, 8)}
    quick = {n: 1.1 * rounds_per_s(table[2], COSTS, n, 128) for n in (1, 8)}
    seen = (
        *(observed(table[1], *each)[1] for each in slower.items()),
        *(observed(table[2], *each)[1] for each in quick.items()),
    )
    costs = replace(COSTS, observed=seen)
    for streams in (1, 4, 8):
        before, after = best(table, COSTS, streams)[1], best(table, costs, streams)[1]
        factors = {
            way.lookahead: after[way].rounds_per_s / before[way].rounds_per_s for way in before
        }
        # Those that were not observed are taken to be off as the others are in the mean.
        assert factors == pytest.approx({4: 0.5, 8: 1.1, 1: 0.742, None: 0.742}, rel=0.05)
    elsewhere = replace(COSTS, observed=[replace(each, temperature=0.8) for each in seen])
    assert best(table, elsewhere) == best(table, COSTS)


@pytest.mark.parametrize(("tries", "factor"), [(1, 1.3 ** (1 / 3)), (2, 1.3**0.5), (100, 1.3)])
def test_a_way_that_leads_after_few_tries_owes_it_to_luck_too(tries, factor):
    table = [chain(1, 1.7), chain(4, 2.8), chain(8, 3.0)]
    as_expected = {each: rounds_per_s(each, COSTS, 1, 128) for each in table}
    seen = [observed(each, 1, speed)[1] for each, speed in as_expected.items()]
    seen[1] = observed(table[1], 1, 1.3 * as_expected[table[1]], tries)[1]
    found = best(table, replace(COSTS, observed=tuple(seen)))[1][table[1].way]
    assert found.rounds_per_s == pytest.approx(factor * as_expected[table[1]], rel=0.02)


@pytest.mark.parametrize(("own", "expected"), [([], 0.7), ([1.4], 0.7 ** (2 / 3) * 1.4 ** (1 / 3))])
def test_a_way_with_few_tries_is_off_as_its_strategy_is(own, expected):
    tree = ProfiledAcceptance(Way("tree", 4, 8), 0.0, 3.0, 8, (2.0,) * 4)
    table = [chain(1, 1.7), chain(4, 2.8), tree]
    alone = {each: rounds_per_s(each, COSTS, 1, 128) for each in table}
    seen = [observed(table[1], 1, 0.7 * alone[table[1]]), observed(tree, 1, 1.2 * alone[tree])]
    seen += [observed(table[0], 1, factor * alone[table[0]], tries=1) for factor in own]
    costs = replace(COSTS, observed=tuple(each for _, each in seen))
    found = best(table, costs)[1][table[0].way]
    assert found.rounds_per_s == pytest.approx(expected * alone[table[0]], rel=0.02)


def test_the_target_alone_is_chosen_where_drafting_does_not_pay():
    way, _ = best([chain(1, 1.05), chain(4, 1.1)], COSTS)
    assert way == Way("autoregressive")


def test_narrow_drafts_are_chosen_where_tokens_cost_and_streams_are_many():
    costs = replace(COSTS, target=Law.fixed(20, 4))
    table = [chain(1, 1.9), chain(8, 4.0)]
    assert best(table, replace(COSTS, drafters=(Law.fixed(1),)))[0] == Way("speculative", 8)
    assert best(table, costs, streams=8)[0] == Way("speculative", 1)


def test_acceptance_is_that_of_the_nearest_temperature():
    table = [chain(4, 4.0, temperature=0.0), chain(4, 1.1, temperature=0.8)]
    assert best(table, COSTS, temperature=0.2)[0] == Way("speculative", 4)
    assert best(table, COSTS, temperature=1.0)[0] == Way("autoregressive")


def test_only_what_a_mesh_has_is_tried():
    assert {each.strategy for each in ways(drafter=True, heads_depth=0)} == {"speculative", "tree"}
    of_heads = ways(drafter=False, heads_depth=3)
    assert {each.strategy for each in of_heads} == {"heads"}
    assert max(each.lookahead for each in of_heads) == 3
    assert len(set(of_heads)) == len(of_heads)


def test_rounds_are_summed_up_by_level():
    forked = TokenTree((1, 2, 3), (0, 0, 1))
    rounds = [ProfiledRound(forked, 3), ProfiledRound(TokenTree.chain((1,)), 1)]
    found = mean_round(Way("tree", 2, 4), 0.8, rounds)
    assert (found.tokens, found.nodes) == (2.0, 2.0)
    assert found.levels == (2.0, 1.5)
    assert mean_round(Way("heads", 2, 4), 0.8, rounds).levels == (1.0, 1.5)

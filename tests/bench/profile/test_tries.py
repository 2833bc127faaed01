"""How ways of decoding are tried, and what is concluded from that."""

import pytest

from specmesh.bench.profile_check import Check
from specmesh.models import Prompt
from specmesh.tools.profile.measure.prompts import parted
from specmesh.tools.profile.rounds import Way
from specmesh.tools.profile.run import ProfilePlan
from specmesh.tools.profile.tries import mesh_tries as tries
from specmesh.tools.profile.tries.mesh_tries import Tried, Try, count_all, regret, steady


def one(tokens_per_s, rounds=5, tokens=10):
    return Try(tokens_per_s, rounds, ((7,) * tokens,))


def tried(name, screening, *finals):
    found = Tried(Way(name), one(screening), [one(each) for each in finals])
    steady([found])
    return found


def test_regret_compares_with_what_was_tried_as_often():
    ways = [tried("a", 70, 50, 90, 50), tried("b", 45, 45, 40, 44), tried("c", 99)]
    assert regret(ways, Way("b")) == pytest.approx(1 - 44 / 50)
    assert regret(ways, Way("a")) == 0


def test_the_try_by_which_a_way_was_selected_does_not_count():
    assert tried("lucky", 99, 50, 51, 52).tokens_per_s == pytest.approx(51)
    assert tried("alone", 99).tokens_per_s == pytest.approx(99)


def test_speed_is_the_median_of_rounds_times_the_tokens_of_all():
    found = Tried(Way("a"), one(1), [one(20, 5), one(30, 2), one(2, 5)])
    steady([found])
    assert [each.rounds_per_s for each in found.finals] == pytest.approx([10, 6, 1])
    assert found.rounds_per_s == pytest.approx(6)
    assert found.tokens_per_round == pytest.approx(30 / 12)
    assert found.tokens_per_s == pytest.approx(6 * 30 / 12)


async def test_tokens_a_round_are_those_of_many_prompts_and_counted_once_for_a_way(monkeypatch):
    asked = []

    async def attempt(client, cores, load, way):
        asked.append((load, way.strategy))
        return one(500.0, rounds=5 if way.strategy == "a" else 2)

    monkeypatch.setattr(tries, "attempt", attempt)
    ways, known = [tried("a", 70, 50), tried("b", 45, 45), tried("c", 99)], {}
    await count_all(None, None, "all", ways, known)
    await count_all(None, None, "all", ways, known)
    assert asked == [("all", "a"), ("all", "b")]
    assert [each.way.strategy for each in ways] == ["b", "a", "c"]
    # As many rounds a second as were timed, half as many tokens a round for the one.
    assert [each.tokens_per_s for each in ways] == pytest.approx([22.5 * 5, 25 * 2, 99])


@pytest.mark.parametrize("streams", [1, 8])
def test_finals_have_other_prompts_than_the_screening_and_in_each_pass_others(streams):
    prompts = [str(number) for number in range(32)]
    check = Check(ProfilePlan((), (0.0,), 40, 60.0, 1), (streams,), prompts, 40, passes=3)
    screening, *finals = (each.prompts for each in check.loads(streams, 0.0))
    assert len(finals) == 3
    assert not set(screening) & set().union(*finals)
    assert set(check.count(0.0).prompts) == set(prompts[8:])
    assert all(len(set(each)) == len(each) >= 2 * streams for each in finals)


def test_prompts_of_one_file_are_on_one_side():
    prompts = [Prompt(f"{n // 2}.py", "", f"{n // 2}:{n}") for n in range(20)]
    own, others = parted(prompts, seed=1)
    assert sorted(own + others) == sorted(each.text for each in prompts)
    assert not {each.split(":")[0] for each in own} & {each.split(":")[0] for each in others}
    assert parted(prompts, seed=1) == (own, others)
    assert len(own) == len(others) == 10

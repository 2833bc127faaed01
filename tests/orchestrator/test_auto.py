"""The strategy `auto`: changes between strategies lose, repeat and leave behind nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
from tests.decoding.test_losslessness import exact_law, excess
from tests.orchestrator.answers import collect, request
from tests.orchestrator.peers import Drafter, Verifier
from tests.orchestrator.test_strategy_properties import Hashes, target_only
from tests.orchestrator.test_strategy_rejection import DRAFTERS, TARGET, any_scene, sample
from tests.orchestrator.transcripts import drafted, verified
from tests.orchestrator.world import Chances, World

from specmesh.decoding.predict.acceptance_rate import (
    DRAFTER,
    HEADS_CHAIN,
    HEADS_LEVELS,
    OTHER_OUTCOMES,
    TREE_LEVELS,
    MeshAcceptance,
)
from specmesh.decoding.sampling import Sampling
from specmesh.orchestrator.answers.request_report import RequestReport
from specmesh.orchestrator.answers.undrafted import FEWEST_TOKENS
from specmesh.orchestrator.strategies.auto import choice as policy
from specmesh.orchestrator.strategies.auto import strategy as module
from specmesh.orchestrator.strategies.auto.choice import Choice
from specmesh.orchestrator.strategies.auto.strategy import CHOICES, UNSETTLED_TOKENS, Auto
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.commands import Cancel, Commit, Draft, Finish, Verify
from specmesh.orchestrator.strategies.events import Capacity, Failed
from specmesh.serving import conventions as names

MEASURED = Capacity(
    num_verifiers=3, target_s=0.04, drafter_s=0.004, heads_s=0.004, heads_depth=4, drafters=(0, 1)
)


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every commit brings the next strategy."""

    def choose(*_: Any, **__: Any) -> Choice:
        return Choice(next(names), "the test wants it", tentative=True)

    names = cycle(CHOICES)
    monkeypatch.setattr(module, "choose", choose)


def plays(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """The choices, of which the last one stays."""

    def choose(*_: Any, **__: Any) -> Choice:
        return Choice(next(left, names[-1]), "the test wants it", tentative=True)

    left: Iterator[str] = iter(names)
    monkeypatch.setattr(module, "choose", choose)


@pytest.mark.usefixtures("changes")
@pytest.mark.parametrize("seed", range(60))
def test_an_answer_of_many_strategies_is_the_target_s_own(seed):
    models = Hashes(seed, agreement=(0.0, 0.6, 0.95, 1.0)[seed % 4])
    goal = Goal(30, stop_token_ids=frozenset({5} if seed % 3 == 0 else ()))
    chances = Chances(
        short_draft=0.1, broken_draft=0.1, replay=0.3, change=0.1, broken_check=0.03 * (seed % 2)
    )
    world = World("auto", goal, models, random.Random(seed), MEASURED, chances)
    reason = world.run()
    assert (world.committed, reason) == target_only(models.target, goal)


@pytest.mark.usefixtures("changes")
def test_changes_keep_the_law_of_rejection_mode():
    counts = sample("auto", any_scene, (TARGET, DRAFTERS), num_samples=2_000)
    assert excess(counts, exact_law(TARGET, Sampling())) < 1


def test_a_change_cancels_what_runs_and_numbers_on(monkeypatch):
    plays(monkeypatch, "dsi", "speculative")
    strategy = Auto(Goal(20))
    started = strategy.start(MEASURED)
    (check,) = (each for each in started if isinstance(each, Verify))
    drafts = {each.task for each in started if isinstance(each, Draft)}
    assert len(drafts) == 2
    commit, *cancels, draft = strategy.handle(verified(check.task, says=7))
    assert commit == Commit((7,), 0)
    assert {each.task for each in cancels if isinstance(each, Cancel)} == drafts
    assert isinstance(draft, Draft)
    assert draft.task > max(drafts)
    assert draft.path == ()
    assert strategy.handle(drafted(min(drafts), 3)) == []
    assert "chose speculative, because the test wants it" in strategy.explanation
    assert "before, dsi for 1 tokens" in strategy.explanation


def test_what_the_former_strategy_has_just_begun_is_not_sent(monkeypatch):
    plays(monkeypatch, "autoregressive", "heads")
    strategy = Auto(Goal(20))
    (check,) = strategy.start(MEASURED)
    commit, verify = strategy.handle(verified(check.task, says=7))
    assert commit == Commit((7,), 0)
    assert isinstance(verify, Verify)
    assert verify.next_draft is not None
    assert strategy.handle(verified(check.task, says=7)) == []


def test_the_last_strategy_ends_the_answer_where_the_request_says(monkeypatch):
    plays(monkeypatch, *CHOICES)
    strategy, task, tokens = Auto(Goal(3)), 0, []
    commands = strategy.start(Capacity(drafters=()))
    while not isinstance(commands[-1], Finish):
        for each in commands:
            if isinstance(each, Verify):
                task = each.task
            elif isinstance(each, Draft):
                task = 0
                commands = strategy.handle(Failed(each.task))
                break
        if task:
            commands = strategy.handle(verified(task, says=4))
            tokens += [t for each in commands if isinstance(each, Commit) for t in each.token_ids]
    assert tokens == [4, 4, 4]


def test_without_a_drafter_one_draft_is_tried():
    strategy = Auto(Goal(60))
    num_drafts = 0
    commands = strategy.start(Capacity(target_s=0.04))
    while not isinstance(commands[-1], Finish):
        (command,) = (each for each in commands if isinstance(each, Draft | Verify))
        if isinstance(command, Draft):
            num_drafts += 1
            commands = strategy.handle(Failed(command.task))
        else:
            commands = strategy.handle(verified(command.task, says=4))
    assert num_drafts == 1
    assert "neither a drafter nor" in strategy.explanation


def test_an_answer_begins_with_the_rates_of_all_and_teaches_them():
    everyone = MeshAcceptance()
    everyone.rate(DRAFTER).learn([False] * 50)
    own = MeshAcceptance(everyone)
    assert own.alpha(DRAFTER) == everyone.alpha(DRAFTER) < 0.1
    own.rate(DRAFTER).learn([True] * 100)
    assert own.alpha(DRAFTER) > everyone.alpha(DRAFTER) > 0.5


@pytest.mark.parametrize(
    ("strategy", "sources"),
    [
        ("speculative", [DRAFTER]),
        ("dsi", [DRAFTER, HEADS_CHAIN]),
        ("tree", [DRAFTER, TREE_LEVELS]),
        ("exhaustive", [DRAFTER, OTHER_OUTCOMES]),
        ("heads", [HEADS_LEVELS]),
        ("heads-and-drafter", [DRAFTER, HEADS_LEVELS]),
    ],
)
def test_every_strategy_teaches_the_rates_that_the_choice_follows(strategy, sources):
    goal = Goal(60)
    capacity = replace(MEASURED, drafters=(0,))
    World(strategy, goal, Hashes(1, agreement=0.6), random.Random(1), capacity).run()
    assert [each for each in sources if not goal.acceptance.num_trials(each)] == []


async def test_the_client_and_the_report_are_told_the_choice(connect, serve, monkeypatch):
    def kept(report: RequestReport) -> None:
        reports.append(report)

    reports: list[RequestReport] = []
    monkeypatch.setattr(RequestReport, "_record", kept)
    stub = await serve(await connect([Verifier()], [Drafter()]))
    ended = await collect(stub.Generate(request(speculation={"strategy": "auto"})))
    told = ended.finished.stats.explanation
    assert told.startswith("chose ")
    (report,) = reports
    assert report._span_attributes()[names.EXPLANATION] == told


async def test_a_choice_that_has_drafted_nothing_is_told_with_the_reason(
    connect, serve, monkeypatch
):
    plays(monkeypatch, "speculative")
    stub = await serve(await connect([Verifier()], []))
    asked = request(speculation={"strategy": "auto"}, stopping={"max_tokens": FEWEST_TOKENS})
    told = (await collect(stub.Generate(asked))).finished.stats.explanation
    assert told == "chose speculative, because the test wants it; but no drafter was ready"


async def test_other_strategies_explain_only_why_they_have_drafted_nothing(
    connect, serve, monkeypatch
):
    stub = await serve(await connect([Verifier()], [Drafter()]))
    dsi = request(speculation={"strategy": "dsi", "lookahead": 4})
    assert not (await collect(stub.Generate(dsi))).finished.stats.explanation
    wanted = "specmesh.orchestrator.answers.answer.why_undrafted"
    monkeypatch.setattr(wanted, lambda *_: "the test wants it")
    assert (await collect(stub.Generate(dsi))).finished.stats.explanation == "the test wants it"


@pytest.mark.parametrize(("period_s", "remembered"), [(0.0, "autoregressive"), (0.04, "heads")])
def test_a_new_answer_begins_as_the_last_one_did_or_as_those_with_which_it_shares_a_replica(
    monkeypatch, period_s, remembered
):
    """What a lone answer changes to suits itself; answers that share a replica change together."""
    seen = []

    def choose(_capacity, acceptance, current, **_):
        seen.append((acceptance is goal.acceptance, current))
        return Choice("heads" if len(seen) > 1 else "autoregressive", "the test wants it")

    monkeypatch.setattr(module, "choose", choose)
    goal = Goal(40)
    strategy = Auto(goal)
    (check,) = strategy.start(replace(MEASURED, period_s=period_s))
    for _ in range(8):
        *_, check = strategy.handle(verified(check.task, says=7))
    assert "chose heads" in strategy.explanation
    assert goal.acceptance.chosen == remembered
    assert seen == [(period_s > 0, None), (period_s > 0, "autoregressive")]


@pytest.mark.parametrize(("period_s", "at_least"), [(0.04, 1), (0.0, 4)])
def test_what_a_forward_answers_shares_a_forecast(monkeypatch, period_s, at_least):
    """It is made anew once another forward has begun."""
    seen = []

    def expected_rates(*_: Any) -> dict[str, float]:
        seen.append(period_s)
        return {"heads": 2.0}

    monkeypatch.setattr(module, "expected_rates", expected_rates)
    monkeypatch.setattr(policy, "expected_rates", expected_rates)
    everyone = MeshAcceptance()
    everyone.rate(DRAFTER).learn([True] * 20)
    capacity = replace(MEASURED, period_s=period_s)
    answers = [Auto(Goal(40, acceptance=everyone)) for _ in range(4)]
    for answer in answers:
        answer.start(capacity)
    assert len(seen) == at_least
    late = Auto(Goal(40, acceptance=everyone))
    late.now = 0.05
    late.start(capacity)
    assert len(seen) == at_least + 1


def test_a_strategy_that_only_measured_has_no_advantage(monkeypatch):
    seen = []

    def choose(_capacity, _acceptance, current, **_):
        seen.append(current)
        return Choice("autoregressive", "the test wants it", tentative=len(seen) == 1)

    monkeypatch.setattr(module, "choose", choose)
    strategy = Auto(Goal(40))
    (check,) = strategy.start(MEASURED)
    task = check.task
    while len(seen) < 3:
        *_, check = strategy.handle(verified(task, says=7))
        task = check.task
    assert seen == [None, None, "autoregressive"]


def test_all_answers_use_the_target_alone_while_it_is_timed(monkeypatch):
    """Those that begin then, too; and each goes on as it did before."""
    plays(monkeypatch, "speculative", "speculative")
    goal = Goal(200)
    strategy = Auto(goal)
    (draft,) = strategy.start(MEASURED)
    assert isinstance(draft, Draft)
    goal.acceptance.speeds.times_alone = True
    (check,) = strategy.handle(Failed(draft.task))
    commit, alone = strategy.handle(verified(check.task, says=7))
    assert commit == Commit((7,), 0)
    assert isinstance(alone, Verify)
    assert not alone.tree
    assert "is timed" in strategy.explanation
    (begun,) = Auto(goal).start(MEASURED)
    assert isinstance(begun, Verify)
    goal.acceptance.speeds.times_alone = False
    _, draft = strategy.handle(verified(alone.task, says=7))
    assert isinstance(draft, Draft)


def test_rounds_are_measured_from_the_second_commit_of_a_stretch_on():
    """Before it, a draft may have begun anew."""
    goal = Goal(200)
    goal.acceptance.speeds.times_alone = True
    seen = []
    goal.acceptance.speeds.add = lambda *args, **_: seen.append(args)
    strategy = Auto(goal)
    (check,) = strategy.start(MEASURED)
    for strategy.now in (1.0, 1.5, 2.5):
        _, check = strategy.handle(verified(check.task, says=7))
    assert seen == [("autoregressive", 1, 0.5), ("autoregressive", 1, 1.0)]


def test_rounds_with_drafts_are_measured_once_the_change_to_them_is_over(monkeypatch):
    """Until then other answers still change, and drafts have just begun."""
    seen = []
    goal = Goal(200)
    goal.acceptance.speeds.add = lambda *args, **_: seen.append(args)
    choice = Choice("heads", "the test wants it", expected=1.5)
    monkeypatch.setattr(module, "choose", lambda *_, **__: choice)
    strategy = Auto(goal)
    (check,) = strategy.start(MEASURED)
    for strategy.now in range(1, 4):
        _, check = strategy.handle(verified(check.task, says=7))
    assert seen == [("heads", 1, 1)] * 2  # an answer's first strategy has replaced none
    strategy._num_before = 3
    for strategy.now in range(4, UNSETTLED_TOKENS + 6):
        _, check = strategy.handle(verified(check.task, says=7))
    assert seen == [("heads", 1, 1)] * 4

"""A strategy is a class and a line of the registry: nothing else has to know of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.orchestrator import test_strategy_properties as properties
from tests.orchestrator import test_strategy_rejection as rejection
from tests.orchestrator.answers import alone, collect, request
from tests.orchestrator.peers import Drafter, Verifier

from specmesh.decoding.tree import TokenTree
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import (
    Cancel,
    Capacity,
    Command,
    Draft,
    Drafted,
    Event,
    Failed,
    GiveUp,
    Goal,
    Strategy,
    Verified,
    Verify,
)
from specmesh.orchestrator.strategies.kit.growing_tree import GrowingTree
from specmesh.orchestrator.strategies.kit.progress import Progress
from specmesh.v1 import generation_pb2

NAME = "until-unsure"


class UntilUnsure(Strategy):
    """Drafts until the first token that is accepted less often than not, as it seems."""

    SURE = 0.5
    MAX_DEPTH = 64
    options = frozenset[str]()

    def __init__(self, goal: Goal) -> None:
        self._progress = Progress(goal)
        self._tree = GrowingTree(task=0)
        self._task = 0
        self._verifying = False

    def start(self, capacity: Capacity) -> Sequence[Command]:
        return [self._begin_round()]

    def handle(self, event: Event) -> Sequence[Command]:
        match event:
            case Drafted(task=self._task):
                self._tree.extend(event)
                drafted = self._tree.run_below(0).confidences
                if event.last:
                    return [self._verify()]
                if drafted and drafted[-1] < self.SURE:
                    return [Cancel(self._task), self._verify()]
            case Verified(task=self._task, verdict=verdict):
                stand = self._tree.run_below(0).tokens[: len(verdict.accepted_nodes)]
                commands = self._progress.commit((*stand, verdict.next_token), len(stand))
                return commands if self._progress.ended else [*commands, self._begin_round()]
            case Failed(task=self._task):
                return [GiveUp(self._task) if self._verifying else self._verify()]
        return []

    def _begin_round(self) -> Command:
        self._tree = GrowingTree(self._task + 1)
        room = self._progress.draftable - len(self._progress.token_ids)
        if room < 1:
            return self._verify()
        self._task += 1
        self._verifying = False
        return Draft(self._task, (), depth=min(room, self.MAX_DEPTH), num_choices=1)

    def _verify(self) -> Verify:
        self._task += 1
        self._verifying = True
        run = self._tree.run_below(0)
        drawn_from = {n: each for n, each in enumerate(run.distributions) if each is not None}
        return Verify(self._task, (), TokenTree.chain(run.tokens), drawn_from)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STRATEGIES, NAME, UntilUnsure)  # type: ignore[arg-type]


async def test_it_is_listed_and_answers_like_the_target_alone(connect, serve):
    stub = await serve(await connect([Verifier()], [Drafter()]))
    asked = request(speculation={"strategy": NAME})
    answer = await collect(stub.Generate(asked))
    assert answer.tokens == alone(asked.sampling)
    assert answer.finished.stats.num_accepted_tokens > 0
    (model,) = (await stub.ListModels(generation_pb2.ListModelsRequest())).models
    assert NAME in model.strategies


def test_it_passes_the_tests_of_all_strategies():
    properties.test_every_strategy_says_what_the_target_alone_would(NAME)
    rejection.test_every_lossless_strategy_keeps_the_law_whatever_happens(NAME)

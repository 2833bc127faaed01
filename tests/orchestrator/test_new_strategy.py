"""A strategy is a class and a line of the registry: nothing else has to know of it."""

from __future__ import annotations

import pytest
from tests.orchestrator import test_strategy_properties as properties
from tests.orchestrator import test_strategy_rejection as rejection
from tests.orchestrator.answers import alone, collect, request
from tests.orchestrator.peers import Drafter, Verifier

from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.commands import Draft, TaskId
from specmesh.orchestrator.strategies.kit.draft_chain import DraftChain
from specmesh.orchestrator.strategies.kit.draft_then_verify import DraftThenVerify
from specmesh.v1 import served_model_pb2

NAME = "an-example"


class UntilUnsure(DraftThenVerify):
    """Drafts up to the first token that is more likely rejected than accepted."""

    SURE = 0.5
    MAX_DEPTH = 64
    options = frozenset[str]()

    def _draft(self, task: TaskId, room: int) -> Draft:
        return Draft(task, (), depth=min(room, self.MAX_DEPTH), num_choices=1)

    def _is_enough(self, chain: DraftChain) -> bool:
        return chain.confidences[-1] < self.SURE


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STRATEGIES, NAME, UntilUnsure)  # type: ignore[arg-type]


async def test_it_is_listed_and_answers_like_the_target_alone(connect, serve):
    stub = await serve(await connect([Verifier()], [Drafter()]))
    asked = request(speculation={"strategy": NAME})
    answer = await collect(stub.Generate(asked))
    assert answer.tokens == alone(asked.sampling)
    assert answer.finished.stats.num_accepted_tokens > 0
    (model,) = (await stub.ListModels(served_model_pb2.ListModelsRequest())).models
    assert NAME in {each.name for each in model.strategies}


def test_it_passes_the_tests_of_all_strategies():
    properties.test_every_strategy_says_what_the_target_alone_would(NAME)
    rejection.test_every_lossless_strategy_keeps_the_law_whatever_happens(NAME)

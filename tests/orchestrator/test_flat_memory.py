"""An answer takes the memory of its tokens: however long it is, nothing else piles up."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from types import BuiltinFunctionType, FunctionType, ModuleType

import pytest
from tests.orchestrator.model import VOCAB_SIZE
from tests.orchestrator.peers import Verifier
from tests.orchestrator.test_strategy_properties import Hashes
from tests.orchestrator.world import Chances, World

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.tree import TokenTree
from specmesh.orchestrator.driver.mesh_driver import Driver
from specmesh.orchestrator.driver.stats import RequestStats
from specmesh.orchestrator.replicas.calls.mesh_calls import Calls
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.commands import (
    Command,
    Commit,
    Draft,
    Finish,
    StopReason,
    Verify,
)
from specmesh.orchestrator.strategies.dsi import DSI
from specmesh.orchestrator.strategies.events import Capacity, Drafted, Event, Failed, Verified
from specmesh.serving.errors import UnavailableStatus

FEW, MANY = 250, 1000
TOKEN_BYTES = 24
"""Most bytes that a token may take: a place in a list, with what a list keeps in reserve."""
OTHERS = (type, ModuleType, FunctionType, BuiltinFunctionType, asyncio.AbstractEventLoop)
"""Types of objects that outlive an answer."""


def num_bytes(root: object, *apart: object) -> int:
    """The size of all that is reached from ``root``, but not by way of what is kept ``apart``."""
    seen, found, total = set(map(id, apart)), [root], 0
    while found:
        each = found.pop()
        if id(each) not in seen and not isinstance(each, OTHERS):
            seen.add(id(each))
            total += sys.getsizeof(each)
            found += gc.get_referents(each)
    return total


class Failing:
    """Commits a token a round, and has a draft fail in each, as with a drafter that is away."""

    explanation = ""

    def __init__(self, num_tokens: int) -> None:
        self._num_left = num_tokens
        self._last_task = 0

    def start(self, capacity: Capacity) -> Sequence[Command]:
        return self._round()

    def handle(self, event: Event) -> Sequence[Command]:
        match event:
            case Failed():
                return [Verify(self._next_task(), (), TokenTree.chain((7, 8)))]
            case Verified():
                self._num_left -= 1
                commit = Commit((7,), 1)
                return [commit, *(self._round() if self._num_left else [Finish(StopReason.STOP)])]
        return []

    def _round(self) -> Sequence[Command]:
        return [Draft(self._next_task(), (), 2)]

    def _next_task(self) -> int:
        self._last_task += 1
        return self._last_task


async def fails(*_: object) -> None:
    raise UnavailableStatus("NO_DRAFTER", "away")


async def verdict(command: Verify, context: object) -> Verified:
    return Verified(command.task, Verdict((1,), 9, recovered=True))


@pytest.fixture
async def drive(connect) -> Callable[[int], Coroutine[None, None, int]]:
    mesh = (await connect([Verifier()])).mesh

    async def driven(num_tokens: int) -> int:
        deadline = asyncio.get_running_loop().time() + 60
        prefix = CommittedPrefix("s", range(1, 41))
        calls = Calls(
            RequestContext(mesh, prefix, Sampling(), vocab_size=VOCAB_SIZE, deadline=deadline)
        )
        calls.draft, calls.verify = fails, verdict
        strategy, stats = Failing(num_tokens), RequestStats()
        driver = Driver(strategy, calls, stats, deliver=lambda commit: None)
        assert await driver.drive() is StopReason.STOP
        assert stats.num_accepted_tokens == num_tokens
        return num_bytes(driver, calls, strategy)

    return driven


async def test_driver_keeps_nothing_of_tasks_that_have_ended(drive):
    assert await drive(MANY) <= await drive(FEW) + 200


def strategy_after(name: str, num_tokens: int) -> int:
    """The size of a strategy at the end of an answer all of which was drafted right."""
    goal = Goal(num_tokens, lookahead=2)
    models = Hashes(1, agreement=1.0, target=lambda tokens: (7 * tokens[-1] + 3) % 49 + 1)
    capacity = Capacity(
        num_verifiers=2, target_s=0.03, drafter_s=0.002, heads_s=0.002, heads_depth=3
    )
    dice, chances = random.Random(5), Chances(quick_draft=1.0)
    world = World(name, goal, models, dice, capacity, chances, keeps=lambda choices: True)
    world._text.append(1)
    world.run()
    return num_bytes(world._strategy, goal.acceptance)


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategy_keeps_nothing_of_tokens_that_are_committed_but_the_tokens(name):
    growth = strategy_after(name, MANY) - strategy_after(name, FEW)
    assert growth / (MANY - FEW) <= TOKEN_BYTES


class AlwaysAhead:
    """Drafts that are always right, and that are ahead of every verdict."""

    def __init__(self) -> None:
        self.strategy = DSI(Goal(10 * MANY, lookahead=1))
        self._verifications: deque[Verify] = deque()
        self._committed = 0
        self._perform(self.strategy.start(Capacity(num_verifiers=2)))

    def commit(self, num_tokens: int) -> int:
        """Go on until so many tokens are committed; return the size of the strategy."""
        while self._committed < num_tokens:
            self._draft_token()
            self._draft_token()
            check = self._verifications.popleft()
            verdict = Verdict(tuple(range(1, len(check.tree) + 1)), 7, recovered=False)
            self._perform(self.strategy.handle(Verified(check.task, verdict)))
        return num_bytes(self.strategy)

    def _draft_token(self) -> None:
        node, self._node = self._node, self._node + 1
        last = self._node == self._draft.depth
        drafted = Drafted(self._draft.task, (7,), (node,), {}, last=last)
        self._perform(self.strategy.handle(drafted))

    def _perform(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Draft():
                    self._draft, self._node = command, 0
                case Verify():
                    self._verifications.append(command)
                case Commit():
                    self._committed += len(command.token_ids)


def test_chain_that_is_always_right_drops_what_is_committed():
    answer = AlwaysAhead()
    growth = -answer.commit(FEW) + answer.commit(MANY)
    assert growth / (MANY - FEW) <= TOKEN_BYTES

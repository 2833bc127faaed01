"""One schedule: a seed in, what happened out."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import grpc.aio
from tests.schedules.clock import Stuck, VirtualLoop
from tests.schedules.scenario import KINDS, Scenario, choose_scenario
from tests.schedules.world import World

from specmesh.client.answers import resumable
from specmesh.client.connections import channels
from specmesh.orchestrator.answers import answer
from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix

_world: World | None = None


class _WatchedPrefix(CommittedPrefix):
    """Tells the ledger where an answer stands."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if _world is not None:
            _world.ledger.began(self)


def _client_channel(address: str, *_: Any, calm: bool = False) -> Any:
    assert _world is not None
    return _world.client_channel(address)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one schedule; without ``violations`` all is well."""

    seed: int
    scenario: Scenario
    violations: tuple[str, ...]
    virtual_s: float
    num_steps: int
    num_calls: int
    num_finished: int
    trace: tuple[str, ...]


def run(
    seed: int,
    *,
    traced: bool = False,
    kinds: Collection[str] = tuple(KINDS),
    width: int | None = None,
) -> Outcome:
    """Run the schedule of ``seed``, with faults of ``kinds``.

    ``traced`` keeps what happened, line by line.
    """
    # The SDK's jitter: its own generator seeds itself with what nobody can have again.
    jitter = SimpleNamespace(Random=lambda: random.Random(seed))
    with (
        patch.object(answer, "CommittedPrefix", _WatchedPrefix),
        patch.object(resumable, "random", jitter),
        patch.object(channels, "open_channel", _client_channel),
    ):
        rng = random.Random(seed)
        scenario = replace(choose_scenario(rng, kinds), width=width)
        return _run(seed, scenario, rng, traced=traced)


def _run(seed: int, scenario: Scenario, rng: random.Random, *, traced: bool) -> Outcome:
    global _world  # noqa: PLW0603 - one schedule at a time; a constructor asks for it
    loop = VirtualLoop()
    lines: list[str] = []

    def trace(*words: object) -> None:
        if traced:
            lines.append(f"{loop.time():9.4f}  {' '.join(map(str, words))}")

    async def all_of_it() -> World:
        global _world  # noqa: PLW0603
        _world = World(scenario, rng, trace)
        return _world

    asyncio.set_event_loop(loop)
    world = loop.run_until_complete(all_of_it())
    loop.set_exception_handler(lambda _, context: world.ledger.violated(_told(context)))
    handler = _Heard(world.ledger.violated)
    logging.getLogger("specmesh").addHandler(handler)
    try:
        loop.run_until_complete(world.run())
    except Stuck as error:
        world.ledger.violated(str(error))
    finally:
        virtual_s, num_steps = loop.time(), loop.num_steps
        violations = tuple(world.ledger.violations)
        logging.getLogger("specmesh").removeHandler(handler)
        loop.set_exception_handler(lambda _, context: None)
        _dispose(loop, world)
        _world = None
    return Outcome(
        *(seed, scenario, violations, virtual_s, num_steps),
        num_calls=sum(len(record.calls) for record in world.records),
        num_finished=sum(record.finished is not None for record in world.records),
        trace=tuple(lines),
    )


@contextmanager
def collecting_seldom() -> Iterator[Callable[[], None]]:
    """No garbage collection in the block but when what this gives is called: it would come at
    another moment of each run, and finalizers with it. What is there already stays out of it, and
    of later ones."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield lambda: gc.collect() and None
    finally:
        gc.enable()


def _dispose(loop: VirtualLoop, world: World) -> None:
    try:
        loop.num_steps = 0
        loop.run_until_complete(world.dispose())
    except Stuck:
        pass
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _told(context: dict[str, Any]) -> str:
    error = context.get("exception")
    return context["message"] if error is None else _in_short(context["message"], error)


def _in_short(message: str, error: BaseException) -> str:
    """What broke, and where in our code."""
    frames = traceback.extract_tb(error.__traceback__)
    last = next((f for f in reversed(frames) if "/specmesh/" in f.filename), None)
    where = "" if last is None else f" ({last.filename.rpartition('/')[2]}:{last.lineno})"
    (what, *_) = str(error).splitlines() or [""]
    if isinstance(error, grpc.aio.AioRpcError):
        what = f"{error.code().name} {error.details()}"
    return f"{message}: {type(error).__name__}: {what}{where}"


class _Heard(logging.Handler):
    """Takes whatever is logged with a traceback for a bug."""

    def __init__(self, violated: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._violated = violated

    def emit(self, record: logging.LogRecord) -> None:
        """See ``logging.Handler``."""
        if record.exc_info and record.exc_info[1] is not None:
            self._violated(_in_short(record.getMessage(), record.exc_info[1]))

"""The driver carries out what a strategy decides, over real gRPC; here strategies are scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.orchestrator.model import VOCAB_SIZE, target_only
from tests.orchestrator.peers import NOT_SERVING, Drafter, Fault, Hold, Verifier, hang

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.orchestrator.driver import rounds
from specmesh.orchestrator.driver.mesh_driver import Driver
from specmesh.orchestrator.driver.stats import RequestStats
from specmesh.orchestrator.replicas.calls.mesh_calls import Calls
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.calls.verify.verify_call import Done
from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix
from specmesh.orchestrator.replicas.replica_pools import ReplicaPools
from specmesh.orchestrator.strategies.commands import (
    Cancel,
    Command,
    Commit,
    Draft,
    Finish,
    GiveUp,
    StopReason,
    Verify,
)
from specmesh.orchestrator.strategies.events import Capacity, Drafted, Event, Verified
from specmesh.serving.errors import DeadlineExceededStatus, UnavailableStatus

PROMPT = tuple(range(1, 41))
SAMPLING = Sampling(temperature=0.8, seed=5)
SAID = target_only(PROMPT, 4, SAMPLING)
FINISH = Finish(StopReason.STOP)

Reply = Sequence[Command] | Callable[[Event], Sequence[Command]]


class Script:
    """Gives these commands, one reply an event, and remembers the events."""

    explanation = ""

    def __init__(self, first: Sequence[Command], *replies: Reply) -> None:
        self.events: list[Event] = []
        self._first = first
        self._replies = list(replies)

    def start(self, capacity: Capacity) -> Sequence[Command]:
        return self._first

    def handle(self, event: Event) -> Sequence[Command]:
        if isinstance(event, Capacity) and event.num_verifiers == self._num_verifiers:
            return []  # only the latencies have changed
        self.events.append(event)
        reply = self._replies.pop(0)
        return reply(event) if callable(reply) else reply

    _num_verifiers = 0


class Play:
    """One script at work on a mesh."""

    def __init__(self, mesh: ReplicaPools, script: Script, seconds: float = 20) -> None:
        script._num_verifiers = len(mesh.verifiers.ready)
        prefix = CommittedPrefix("s", PROMPT)
        deadline = asyncio.get_running_loop().time() + seconds
        self.calls = Calls(
            RequestContext(mesh, prefix, SAMPLING, vocab_size=VOCAB_SIZE, deadline=deadline)
        )

        self._driver = Driver(script, self.calls, RequestStats(), deliver=lambda commit: None)

    async def run(self) -> None:
        async with asyncio.timeout(10):
            assert await self._driver.drive() is StopReason.STOP


class Busy:
    """Never lets a call go on; ``reached`` once so many are at it."""

    def __init__(self, num_calls: int) -> None:
        self.reached = asyncio.Event()
        self._num_missing = num_calls

    async def __call__(self) -> None:
        self._num_missing -= 1
        if not self._num_missing:
            self.reached.set()
        await hang()


def breaking(hold: Hold) -> Fault:
    """The replica drains once ``hold`` is released, so that the call is sent again."""

    async def breaks() -> None:
        await hold()
        raise UnavailableStatus("DRAINING", "going")

    return breaks


async def happens(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), 10)


async def test_cancel_reaches_drafter_and_verifier(connect):
    slow, quick, drafter = Verifier(), Verifier(), Drafter()
    mesh = (await connect([slow, quick], [drafter])).mesh
    drafter.after_message = slow.always = both_busy = Busy(2)
    quick.faults.append(both_busy.reached.wait)
    cancelling = [Cancel(1), Cancel(2), Verify(4, (), EMPTY)]
    first = [Verify(1, (), EMPTY), Draft(2, (), 5), Verify(3, (), EMPTY)]

    def answered(event: Event) -> Sequence[Command]:
        return cancelling if isinstance(event, Verified) else []

    script = Script(first, answered, answered, [FINISH])
    await Play(mesh, script).run()
    await happens(slow.cancelled)
    await happens(drafter.cancelled)
    assert [peer.num_outstanding for peer in mesh.verifiers.peers] == [0, 0]
    assert [peer.num_outstanding for peer in mesh.drafters.peers] == [0]


async def test_replica_set_free_is_seen_to_be_free_by_what_is_sent_next(connect):
    stuck, quick = Verifier(), Verifier()
    mesh = (await connect([stuck, quick])).mesh
    stuck.faults.append(hang)
    quick.faults.append(stuck.arrived.wait)
    script = Script(
        [Verify(1, (), EMPTY), Verify(2, (), EMPTY)],
        # Otherwise both would go to the quick one.
        [Verify(3, (), EMPTY), Cancel(1), Verify(4, (), EMPTY)],  # in whichever order
        [],
        [FINISH],
    )
    await Play(mesh, script).run()
    assert [len(verifier.requests) for verifier in (stuck, quick)] == [2, 2]


async def test_answer_that_waits_when_its_task_is_cancelled_is_not_handed_in(connect):
    script = Script(
        [Verify(1, (), EMPTY), Verify(2, (), EMPTY)],
        [Cancel(2), Verify(3, (), EMPTY)],
        [FINISH],
    )
    play = Play((await connect([Verifier()])).mesh, script)

    class Answered:
        """The call of a verification that is answered in the next step of the event loop."""

        def __init__(self, command: Verify, context: object, done: Done) -> None:
            verified = Verified(command.task, Verdict((), command.task, recovered=False))
            asyncio.get_running_loop().call_soon(done, verified)

        def free(self) -> None: ...

        def cancel(self) -> None: ...

    play.calls.verifications.begin = Answered
    await play.run()
    assert [event.task for event in script.events] == [1, 3]


async def test_a_strategy_that_fails_ends_its_answer_with_the_error(connect):
    def fail(event: Event) -> Sequence[Command]:
        raise KeyError(event.task)

    other = Verifier()
    other.always = hang
    script = Script([Verify(1, (), EMPTY), Verify(2, (), EMPTY)], fail)
    with pytest.raises(KeyError):
        await Play((await connect([Verifier(), other])).mesh, script).run()
    await happens(other.cancelled)


async def test_end_of_the_answer_cancels_whatever_is_left(connect):
    slow, quick, drafter = Verifier(), Verifier(), Drafter()
    drafter.after_message = slow.always = both_busy = Busy(2)
    quick.faults.append(both_busy.reached.wait)
    mesh = (await connect([slow, quick], [drafter])).mesh
    first = [Verify(1, (), EMPTY), Verify(2, (), EMPTY), Draft(3, (), 5)]

    def answered(event: Event) -> Sequence[Command]:
        return [FINISH] if isinstance(event, Verified) else []

    await Play(mesh, Script(first, answered, answered)).run()
    await happens(slow.cancelled)
    await happens(drafter.cancelled)


@pytest.mark.parametrize("commands", [[], [Verify(1, (), EMPTY)]], ids=["nothing", "a replica"])
async def test_answer_ends_at_its_deadline_whatever_it_waits_for(connect, commands):
    verifier = Verifier()
    verifier.always = hang
    mesh = (await connect([verifier])).mesh
    began = asyncio.get_running_loop().time()
    with pytest.raises(DeadlineExceededStatus):
        await Play(mesh, Script(commands, [GiveUp(1)]), seconds=0.3).run()
    assert 0.3 <= asyncio.get_running_loop().time() - began < 5
    assert mesh.verifiers.peers[0].num_outstanding == 0


async def test_path_means_what_it_meant_when_the_command_was_given(connect):
    """A call that is repeated after a commit must not put the path behind what is new."""
    first, second = Verifier(), Verifier()
    mesh = (await connect([first, second])).mesh
    hold = Hold()
    second.faults.append(breaking(hold))
    ahead = Verify(2, (SAID[0],), TokenTree.chain(SAID[1:3]))

    def commit(event: Event) -> Sequence[Command]:
        hold.released.set()
        return [Commit((SAID[0],), 1)]

    first.faults.append(hold.reached.wait)
    script = Script([Verify(1, (), EMPTY), ahead], commit, [FINISH])
    await Play(mesh, script).run()
    assert script.events[0] == Verified(1, Verdict((), SAID[0], recovered=False))
    assert script.events[1] == Verified(2, Verdict((1, 2), SAID[3], recovered=False))
    assert len(first.requests) == 2


async def test_draft_that_is_repeated_after_a_commit_hangs_from_its_own_path(connect):
    verifier, drafter, other = Verifier(), Drafter(agreement=1), Drafter(agreement=1)
    mesh = (await connect([verifier], [drafter, other])).mesh
    hold = Hold()
    drafter.faults.append(breaking(hold))
    verifier.faults.append(hold.reached.wait)

    def commit(event: Event) -> Sequence[Command]:
        hold.released.set()
        return [Commit(SAID[:1], 0)]

    first = [Draft(1, (SAID[0],), 2, levels_per_message=2), Verify(2, (), EMPTY)]
    script = Script(first, commit, [FINISH])
    await Play(mesh, script).run()
    assert (len(drafter.requests), len(other.requests)) == (1, 1)
    draft = script.events[1]
    assert isinstance(draft, Drafted)
    assert draft.token_ids == tuple(SAID[1:3])


async def test_strategy_is_told_at_once_that_a_replica_has_left(connect):
    """Nothing else happens: the verification under way never ends."""
    staying, leaving = Verifier(), Verifier()
    staying.always = hang
    mesh = (await connect([staying, leaving])).mesh
    script = Script([Verify(1, (), EMPTY)], [FINISH])
    playing = asyncio.create_task(Play(mesh, script).run())
    await happens(staying.arrived)
    await leaving.set_health(NOT_SERVING)
    await playing
    (told,) = script.events
    assert isinstance(told, Capacity)
    assert told.num_verifiers == 1


@pytest.fixture
def exported(monkeypatch):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    monkeypatch.setattr(rounds, "tracer", tracer)
    with tracer.start_as_current_span("request"):
        yield exporter
    provider.shutdown()


async def test_cancellation_is_a_span_of_its_round(connect, exported):
    verifier, drafter = Verifier(), Drafter()
    mesh = (await connect([verifier], [drafter])).mesh
    drafter.faults.append(verifier.arrived.wait)
    verifier.faults.append(hang)
    script = Script(
        [Verify(1, (), EMPTY), Draft(2, (), 1)],
        [Commit((SAID[0],), 0), Cancel(1), Verify(3, (), EMPTY)],
        [FINISH],
    )
    await Play(mesh, script).run()
    spans = {span.name: span for span in exported.get_finished_spans()}
    cancelled = spans["specmesh.cancel"]
    assert cancelled.attributes["specmesh.cancelled.tasks"] == 1
    rounds_of = [s for s in exported.get_finished_spans() if s.name == "specmesh.round"]
    assert cancelled.parent.span_id in {span.context.span_id for span in rounds_of}

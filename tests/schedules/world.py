"""A mesh with its clients in one process, on virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import grpc.aio
from tests.schedules.clock import Process, current_process
from tests.schedules.drafter import Confidence, Drafter
from tests.schedules.faults import Faults
from tests.schedules.ledger import Ledger, Record
from tests.schedules.names import Names
from tests.schedules.network import Network
from tests.schedules.orchestrators import Addresses, Orchestrator
from tests.schedules.prompts import Prompts
from tests.schedules.replicas import Health
from tests.schedules.scenario import LAST_FAULT_S, Question, Scenario
from tests.schedules.store import Redis
from tests.schedules.verifier import Verifier

from specmesh.client import AsyncClient, SpecmeshError, Timeouts
from specmesh.decoding.sampling import AcceptanceMode
from specmesh.v1 import generation_pb2
from specmesh.v1.generation_pb2_grpc import GenerationServiceStub

PATIENCE_S = 120.0
"""How long a client waits for its whole answer."""
START_S = 20.0
"""How long an orchestrator may take to find a mesh that is well."""
LONGEST_LAG_S = 1.5
"""Of the store, before an orchestrator dies of another fault."""
SETTLE_S = 1.0
"""After the last answer: what was cancelled has ended by then."""

MODES = {
    AcceptanceMode.GREEDY: None,
    AcceptanceMode.COUPLED: "coupled",
    AcceptanceMode.REJECTION: "rejection",
}


class World:
    """See the module. ``trace`` is told all that happens."""

    def __init__(self, scenario: Scenario, rng: random.Random, trace: Callable[..., None]) -> None:
        self.trace = trace
        self.ledger = Ledger(trace)
        self.network = Network(rng, scenario.latency_s, trace)
        self.redis = Redis(rng, scenario.redis_s, self.ledger.written, trace)
        self.orchestrators: dict[str, Orchestrator] = {}
        self.verifiers: dict[str, Verifier] = {}
        self.drafters: dict[str, Drafter] = {}
        self.filters: dict[str, Confidence] = {}
        self.records: list[Record] = []
        self.processes: list[Process] = []
        self._capacities: dict[str, int] = {}
        self.other_templates: set[str] = set()
        """Addresses of orchestrators that make other prompts of what they are asked."""
        self._asking: dict[Process | None, Record] = {}
        self._thefts: list[asyncio.Task[None]] = []
        self._scenario = scenario
        self._faults = Faults(self, rng)
        verifiers = [f"v{n}:1" for n in range(scenario.num_verifiers)]
        self.names = Names(rng, scenario.latency_s, verifiers)
        self._addresses = Addresses(
            [] if scenario.has_name else verifiers,
            [f"d{n}:1" for n in range(len(scenario.agreements))],
            ["c0:1"] * scenario.has_filter,
            self.names if scenario.has_name else None,
        )

    async def run(self) -> None:
        """Answer all questions, whatever goes wrong, and check that nothing is left."""
        await self._start()
        began = asyncio.get_running_loop().time()
        self._faults.schedule(self._scenario.faults)
        clients = [
            self._client(number, question)
            for number, question in enumerate(self._scenario.questions)
        ]
        await asyncio.gather(*clients)
        over = asyncio.get_running_loop().time()
        if self._scenario.faults:
            last = max(fault.at + fault.lasts + LONGEST_LAG_S for fault in self._scenario.faults)
            await asyncio.sleep(max(0.0, began + last - over))
        await self._all_up()
        await asyncio.sleep(SETTLE_S)
        for record in self.records:
            self.ledger.closed(record)
        await self._check_rest()

    async def _all_up(self) -> None:
        """Orchestrators that were started anew find their mesh."""
        starting = [orchestrator.starting for orchestrator in self.orchestrators.values()]
        try:
            async with asyncio.timeout(START_S):
                await asyncio.gather(*starting)
        except TimeoutError:
            self.ledger.violated("an orchestrator does not come up in a mesh that is well")

    def kill(self, process: Process) -> None:
        """SIGKILL."""
        if process.alive:
            process.kill()
            self.network.reset(process)

    def start_verifier(self, address: str, kv_capacity_tokens: int = 0) -> None:
        """Start a process, also again, and then as it was; nothing happens if it runs."""
        if address in self.verifiers and self.verifiers[address].process.alive:
            return
        capacity = self._capacities.setdefault(address, kv_capacity_tokens)
        self.verifiers[address] = Verifier(
            *(address, self.network, Health(), self._scenario.target_s),
            self.ledger.asked,
            has_heads=self._scenario.has_heads(int(address[1:].partition(":")[0])),
            kv_capacity_tokens=capacity,
        )
        self.processes.append(self.verifiers[address].process)

    def start_drafter(self, address: str) -> None:
        """Start a process, also again; nothing happens if it runs."""
        if address in self.drafters and self.drafters[address].process.alive:
            return
        number = self._addresses.drafters.index(address)
        self.drafters[address] = Drafter(
            *(address, self.network, Health(), self._scenario.drafter_s),
            *(f"drafter-{number}", self._scenario.agreements[number]),
        )
        self.processes.append(self.drafters[address].process)

    def start_orchestrator(self, address: str) -> None:
        """Start a process, also again; nothing happens if it runs."""
        if address in self.orchestrators and self.orchestrators[address].process.alive:
            return
        store = self.redis if self._scenario.has_store else None
        prompts = Prompts(lambda: address in self.other_templates)
        orchestrator = Orchestrator(address, self.network, self._addresses, store, prompts)
        self.orchestrators[address] = orchestrator
        self.processes.append(orchestrator.process)

    async def _start(self) -> None:
        for address in self.names.addresses:
            self.start_verifier(address)
        for address in self._addresses.drafters:
            self.start_drafter(address)
        for address in self._addresses.filters:
            pace_s = self._scenario.drafter_s
            self.filters[address] = Confidence(address, self.network, Health(), pace_s)
            self.processes.append(self.filters[address].process)
        for number in range(self._scenario.num_orchestrators):
            self.start_orchestrator(f"o{number}:1")
        await self._all_up()
        await asyncio.sleep(0.05)

    def _client(self, number: int, question: Question) -> asyncio.Task[None]:
        process = Process(f"client{number}")
        self.processes.append(process)
        record = Record(question)
        self.records.append(record)
        self._asking[process] = record
        return process.start(self._ask(question, record))

    async def _ask(self, question: Question, record: Record) -> None:
        await asyncio.sleep(question.asked_at)
        client = AsyncClient(*self.orchestrators, timeouts=Timeouts(generate_s=PATIENCE_S))
        stream = client.generate(
            question.prompt,
            temperature=question.sampling.temperature,
            seed=question.sampling.seed,
            acceptance_mode=MODES[question.sampling.mode],
            max_tokens=question.max_tokens,
            strategy=question.strategy,
            lookahead=question.lookahead,
            width=self._scenario.width,
            request_id=str(current_process()),
        )
        try:
            async with asyncio.timeout_at(question.leaves_at):
                await stream
        except SpecmeshError as error:
            record.failure = f"{error.code.name} {error.reason}: {error}"
            self.trace("client", "failed", record.failure)
            # Else the client heard at once that nobody is there. And where each orchestrator makes
            # another prompt than that of an answer, and none has it stored, nobody can go on.
            if record.calls and error.reason != "PROMPT_CHANGED":
                self.ledger.violated(f"an answer failed: {record.failure}")
        except TimeoutError:
            self.trace("client", "left")
        await client.aclose()

    def client_channel(self, address: str) -> Any:
        """The running client's, each of whose messages is noted for its answer."""
        record = self._asking[current_process()]
        return self.network.observed_channel(
            address, lambda call, message: self.ledger.read(record, call, message)
        )

    def steal(self, address: str, session_id: str, rng: random.Random) -> None:
        """Somebody who knows of a session, and not its secret, asks for the rest of it."""
        process = Process("thief")
        self.processes.append(process)
        request = generation_pb2.ResumeRequest(
            session_id=session_id,
            resume_token=rng.randbytes(rng.choice((0, 16))),
            epoch=rng.choice((1, 2, 1000)),
        )
        self._thefts.append(process.start(self._steal(address, request)))

    async def _steal(self, address: str, request: generation_pb2.ResumeRequest) -> None:
        stub = GenerationServiceStub(self.network.channel(address))
        call: Any = stub.Resume(request, timeout=PATIENCE_S)
        with suppress(grpc.aio.AioRpcError):
            async for message in call:
                # That the orchestrator lives is no secret.
                if not message.event.HasField("heartbeat"):
                    self.ledger.violated(f"a stranger is told {message.event.WhichOneof('kind')}")

    async def _check_rest(self) -> None:
        """Nothing is at work any more, and nothing stays when all leave."""
        await asyncio.gather(*self._thefts)
        check = self.ledger.violated
        replicas = (*self.verifiers.values(), *self.drafters.values(), *self.filters.values())
        for replica in replicas:
            if replica.process.alive and replica.num_at_work:
                check(f"{replica.process} still works on {replica.num_at_work} requests")
        for orchestrator in self.orchestrators.values():
            for peer in (peer for pool in orchestrator.pools for peer in pool.peers):
                if peer.num_outstanding or peer.num_ending:
                    check(
                        f"{orchestrator.process} holds {peer.num_outstanding} places at "
                        f"{peer.address}, and {peer.num_ending} that end"
                    )
            await orchestrator.process.start(orchestrator.close())
        await asyncio.sleep(SETTLE_S)
        for process in self.processes:
            left = [task for task in process.tasks if not task.done()] if process.alive else ()
            if left:
                check(f"{process} has not ended: {left}")
        if calls := self.network.open_calls:
            check(f"calls stay open: {calls}")

    async def dispose(self) -> None:
        """Let dead processes clean up after all, so that Python may."""
        for process in self.processes:
            if not process.alive:
                process.runs = True
            for task in process.tasks:
                task.cancel()
        tasks = [task for process in self.processes for task in process.tasks if not task.done()]
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)


assert LAST_FAULT_S < PATIENCE_S / 2

"""What goes wrong, and how it is well again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import grpc
from tests.schedules.clock import Process
from tests.schedules.replicas import Health
from tests.schedules.scenario import Fault
from tests.schedules.status import Status
from tests.schedules.store import Hint

if TYPE_CHECKING:
    from tests.schedules.world import World

Heal = Callable[[], None]

PROXY = (
    Status(grpc.StatusCode.INTERNAL, "Received RST_STREAM with error code 2"),
    Status(grpc.StatusCode.UNKNOWN, "Stream removed"),
)
"""What a proxy between a client and its orchestrator says when that is gone."""


class Faults:
    """Injects faults into a world."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._dice = rng
        self._loop = asyncio.get_running_loop()

    def schedule(self, faults: Sequence[Fault]) -> None:
        """From now on, counted from now."""
        for fault in faults:
            self._loop.call_later(fault.at, self._begin, fault)

    def _begin(self, fault: Fault) -> None:
        self._world.trace("FAULT", fault.kind, f"for {fault.lasts:.3f} s")
        heal = getattr(self, "_" + fault.kind.replace(" ", "_"))(fault.lasts)
        if heal is not None:
            self._loop.call_later(fault.lasts, heal)

    def _one(self, processes: Sequence[str]) -> str:
        return self._dice.choice(list(processes))

    def _kill_orchestrator(self, lasts: float) -> Heal:
        address = self._one(self._world.orchestrators)
        self._world.kill(self._world.orchestrators[address].process)
        return lambda: self._world.start_orchestrator(address)

    def _freeze_orchestrator(self, lasts: float) -> Heal:
        address = self._one(self._world.orchestrators)
        return self._freeze(self._world.orchestrators[address].process, lasts)

    def _kill_verifier(self, lasts: float) -> Heal:
        address = self._one(self._world.verifiers)
        self._world.kill(self._world.verifiers[address].process)
        return lambda: self._world.start_verifier(address)

    def _freeze_verifier(self, lasts: float) -> Heal:
        address = self._one(self._world.verifiers)
        return self._freeze(self._world.verifiers[address].process, lasts)

    def _kill_drafter(self, lasts: float) -> Heal | None:
        if not self._world.drafters:
            return None
        address = self._one(self._world.drafters)
        self._world.kill(self._world.drafters[address].process)
        return lambda: self._world.start_drafter(address)

    def _sick_verifier(self, lasts: float) -> Heal:
        return self._sicken(self._world.verifiers[self._one(self._world.verifiers)].health)

    def _sick_drafter(self, lasts: float) -> Heal | None:
        drafters = self._world.drafters
        return self._sicken(drafters[self._one(drafters)].health) if drafters else None

    def _sick_confidence(self, lasts: float) -> Heal | None:
        filters = self._world.filters
        return self._sicken(filters[self._one(filters)].health) if filters else None

    def _sicken(self, health: Health) -> Heal:
        share = self._dice.choice((0.2, 1.0))
        match self._dice.randrange(4):
            case 0:
                health.slow = self._dice.choice((10.0, 100.0))
            case 1:
                health.breaks = share
            case 2:
                health.hangs = share
            case 3:
                health.lies = share
        self._world.trace("sick", health)
        return health.heal

    def _freeze(self, process: Process, lasts: float) -> Heal:
        if process.alive:
            process.freeze()
            self._world.network.suspect(process, self._loop.time() + lasts)
        return process.thaw

    def _break_calls(self, lasts: float) -> None:
        calls = [call for call in self._world.network.open_calls if self._dice.random() < 0.5]
        for call in calls:
            self._world.network.break_call(call)

    def _proxy_error(self, lasts: float) -> None:
        for call in self._world.network.open_calls:
            if call.process is not None and call.process.name.startswith("client"):
                self._world.network.break_call(call, self._dice.choice(PROXY))

    def _stall_call(self, lasts: float) -> None:
        calls = self._world.network.open_calls
        if calls:
            self._world.network.stall(self._dice.choice(calls))

    def _theft(self, lasts: float) -> None:
        """A stranger who has read an id in a log asks for the answer."""
        orchestrator = self._one(self._world.orchestrators)
        sessions = [session for record in self._world.records for session in record.sessions]
        if sessions:
            self._world.steal(orchestrator, self._dice.choice(sessions), self._dice)

    def _cut(self, lasts: float) -> None:
        orchestrator = self._world.orchestrators[self._one(self._world.orchestrators)]
        others = {**self._world.verifiers, **self._world.drafters}
        other = others[self._one(others)]
        until = self._loop.time() + lasts
        self._world.network.cut(orchestrator.process, other.process, until)

    def _bad_links(self, lasts: float) -> Heal:
        network = self._world.network
        network.spikes, network.spike_s = 0.1, self._dice.choice((0.01, 0.1, 1.0))
        network.breaks = self._dice.choice((0.0, 0.01, 0.05))
        network.stalls = self._dice.choice((0.0, 0.0, 0.01))
        return network.calm

    def _kill_redis(self, lasts: float) -> Heal | None:
        redis = self._world.redis
        if not redis.process.alive:
            return None
        redis.kill()
        num_lost = self._dice.choice((0, 0, None, 1, 3, 10))
        return lambda: redis.restart(num_lost)

    def _freeze_redis(self, lasts: float) -> Heal:
        process = self._world.redis.process
        if process.alive:
            process.freeze()
        return process.thaw

    def _lag_and_die(self, lasts: float) -> Heal:
        """The store falls behind, and an orchestrator dies before it has caught up."""
        lags = self._dice.uniform(0.2, 1.2)
        thaw = self._freeze_redis(lags)
        self._loop.call_later(lags, thaw)
        address = self._one(self._world.orchestrators)
        dies = lags * self._dice.uniform(0.3, 1.1)
        self._loop.call_later(dies, lambda: self._world.kill(self._process_at(address)))
        self._loop.call_later(dies + lasts, self._world.start_orchestrator, address)
        return thaw

    def _process_at(self, address: str) -> Process:
        return self._world.orchestrators[address].process

    def _late_redis(self, lasts: float) -> Heal:
        redis = self._world.redis
        redis.late, redis.late_s = self._dice.choice((0.1, 0.5)), self._dice.choice((0.1, 0.5, 2.0))
        return redis.calm

    def _lossy_redis(self, lasts: float) -> Heal:
        self._world.redis.lost = self._dice.choice((0.05, 0.3))
        return self._world.redis.calm

    def _garbage_hints(self, lasts: float) -> Heal:
        """Whoever asks Redis who holds a prefix reads garbage, or a lie."""
        redis = self._world.redis
        redis.garbage = self._garbage
        return lambda: setattr(redis, "garbage", None)

    def _garbage(self) -> Hint:
        held_by = self._dice.choice(
            [*self._world.verifiers.values(), *self._world.drafters.values()]
        )
        lease_ends_ms = b"%d" % ((self._loop.time() + 100) * 1e3)
        return self._dice.choice(
            (
                {b"\xff\xfe": lease_ends_ms},
                {b"\xff\xfe": b"inf", held_by.identity.encode(): lease_ends_ms},
                b"\xff\xfe",
            )
        )

    def _replace_verifier(self, lasts: float) -> None:
        """Another at another address takes its place; before it has gone, or after."""
        names, world = self._world.names, self._world
        if not names.addresses:  # those that left have no successor yet
            return
        old, new = self._one(names.addresses), f"v{len(world.verifiers)}:1"
        world.start_verifier(new)
        self._loop.call_later(self._dice.uniform(0, lasts), names.addresses.append, new)
        self._loop.call_later(self._dice.uniform(0, lasts), self._leave, old)
        process = world.verifiers[old].process
        self._loop.call_later(self._dice.uniform(0, lasts), world.kill, process)

    def _leave(self, address: str) -> None:
        if address in self._world.names.addresses:  # else it was to be replaced twice
            self._world.names.addresses.remove(address)

    def _small_verifier(self, lasts: float) -> Heal:
        """One joins whose KV cache is too small for some answers, and leaves again."""
        world = self._world
        address = f"v{len(world.verifiers)}:1"
        world.start_verifier(address, kv_capacity_tokens=self._dice.choice((4, 12, 24)))
        world.names.addresses.append(address)
        process = world.verifiers[address].process

        def leave() -> None:
            self._leave(address)
            world.kill(process)

        return leave

    def _other_template(self, lasts: float) -> Heal:
        """An orchestrator comes to see replicas with another chat template alone."""
        address, others = self._one(self._world.orchestrators), self._world.other_templates
        others.add(address)
        return lambda: others.discard(address)

    def _damaged_session(self, lasts: float) -> None:
        """Something else writes to Redis, and an orchestrator dies or doesn't."""
        self._world.redis.damage()
        if self._dice.random() < 0.5:
            address = self._one(self._world.orchestrators)
            self._world.kill(self._world.orchestrators[address].process)
            self._loop.call_later(lasts, self._world.start_orchestrator, address)

    def _dns_away(self, lasts: float) -> Heal:
        names = self._world.names
        names.away = True
        return lambda: setattr(names, "away", False)

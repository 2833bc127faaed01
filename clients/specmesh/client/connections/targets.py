"""The orchestrators that a client calls, and their order."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Iterator, Sequence

from specmesh.client.connections.addresses import is_name
from specmesh.client.connections.channels import ChannelSettings, Endpoint


class Turns(Iterator[Endpoint]):
    """The target of an answer's first call, then of each retry or resume; endless. Those to be
    passed over have no turn unless all are."""

    def __init__(self, targets: Sequence[Endpoint]) -> None:
        self._targets = targets
        self._cycle = itertools.cycle(targets)

    @property
    def all_passed_over(self) -> bool:
        """True while no target is preferred to another."""
        return all(each.passed_over for each in self._targets)

    def __next__(self) -> Endpoint:
        for target in self._cycle:
            if not target.passed_over or self.all_passed_over:
                return target
        raise AssertionError("there is no target")


class Targets:
    """All targets of a client in one event loop, which its calls share."""

    def __init__(self, targets: Sequence[Endpoint]) -> None:
        self._targets = targets
        self._turns = itertools.cycle(range(len(targets)))

    def in_turn(self) -> Turns:
        """Return the turns of an answer's calls, beginning after the target that the answer before
        began with."""
        first = next(self._turns)
        return Turns((*self._targets[first:], *self._targets[:first]))

    async def suspend(self) -> None:
        """Break all open calls and start none until `reopen`."""
        for target in self._targets:
            await target.suspend()

    def reopen(self) -> None:
        """Let calls start again."""
        for target in self._targets:
            target.reopen()

    async def aclose(self) -> None:
        """Close the connections."""
        for target in self._targets:
            await target.aclose()


class ClientTargets:
    """The targets of a client in all event loops and processes.

    Channels belong to an event loop and don't survive a fork, so each loop of each process has
    targets of its own, made on first use.
    """

    def __init__(self, addresses: Sequence[str], settings: ChannelSettings) -> None:
        self.addresses = tuple(addresses)
        self._settings = settings
        self._targets: dict[asyncio.AbstractEventLoop, Targets] = {}
        self._pid = os.getpid()

    @property
    def num_targets(self) -> int:
        """The number of orchestrators that calls may reach: at least two behind each name."""
        return sum(2 if is_name(address) else 1 for address in self.addresses)

    def here(self) -> Targets:
        """Return the targets of the running event loop."""
        if self._pid != os.getpid():
            self._targets, self._pid = {}, os.getpid()
        loop = asyncio.get_running_loop()
        if loop not in self._targets:
            for closed in [each for each in list(self._targets) if each.is_closed()]:
                self._targets.pop(closed, None)  # unless another thread was faster
            endpoints = [Endpoint(address, self._settings) for address in self.addresses]
            self._targets[loop] = Targets(endpoints)
        return self._targets[loop]

    async def suspend(self) -> None:
        """Break all calls of the running event loop and start none until `reopen`."""
        await self.here().suspend()

    def reopen(self) -> None:
        """Let calls of the running event loop start again."""
        self.here().reopen()

    async def aclose(self) -> None:
        """Close the connections of the running event loop; later calls open new ones."""
        targets = self._targets.pop(asyncio.get_running_loop(), None)
        if targets is not None:
            await targets.aclose()

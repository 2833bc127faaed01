"""The orchestrators that a client may call, and which one next."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # The stub's asynchronous face exists for the type checker only.
    from specmesh.v1.generation_pb2_grpc import GenerationServiceAsyncStub

PASSED_OVER_S = 2.0
"""How long a target that broke a call is passed over: about what it takes to start anew."""


class Endpoint:
    """An orchestrator: its address (host:port) and the stub that calls it."""

    def __init__(self, address: str, stub: GenerationServiceAsyncStub) -> None:
        self.address = address
        self.stub = stub
        self._back_at = 0.0

    def broke(self) -> None:
        """A call to it broke: other calls had better go elsewhere for a while."""
        self._back_at = asyncio.get_running_loop().time() + PASSED_OVER_S

    @property
    def passed_over(self) -> bool:
        """Whether it is left alone where there is another."""
        return asyncio.get_running_loop().time() < self._back_at


class Targets:
    """All targets of a client, shared by its calls."""

    def __init__(self, targets: Sequence[Endpoint]) -> None:
        self._targets = targets
        self._turns = itertools.cycle(range(len(targets)))

    def __len__(self) -> int:
        return len(self._targets)

    def in_turn(self) -> Iterator[Endpoint]:
        """Whom one call goes to, and where it goes on after each break; endless."""
        first = next(self._turns)
        for target in itertools.cycle((*self._targets[first:], *self._targets[:first])):
            if not target.passed_over or all(each.passed_over for each in self._targets):
                yield target

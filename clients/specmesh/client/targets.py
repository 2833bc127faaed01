"""The orchestrators that a client may call, and which one next."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # The stub's asynchronous face exists for the type checker only.
    from specmesh.v1.generation_pb2_grpc import GenerationServiceAsyncStub

PASSED_OVER_S = 2.0
"""How long a target that broke a call is passed over: about as long as a restart takes."""


class Endpoint:
    """An orchestrator: its address (host:port) and the stub that calls it."""

    def __init__(self, address: str, stub: GenerationServiceAsyncStub) -> None:
        self.address = address
        self.stub = stub
        self._back_at = 0.0

    def broke(self) -> None:
        """Record that a call to it broke: for a while other calls go elsewhere, if they can."""
        self._back_at = asyncio.get_running_loop().time() + PASSED_OVER_S

    @property
    def passed_over(self) -> bool:
        """Whether calls go elsewhere, if there is another target."""
        return asyncio.get_running_loop().time() < self._back_at


class Targets:
    """All targets of a client, shared by its calls."""

    def __init__(self, targets: Sequence[Endpoint]) -> None:
        self._targets = targets
        self._turns = itertools.cycle(range(len(targets)))

    def __len__(self) -> int:
        return len(self._targets)

    def in_turn(self) -> Iterator[Endpoint]:
        """The target of an answer's first call, then of the call after each break; endless."""
        first = next(self._turns)
        for target in itertools.cycle((*self._targets[first:], *self._targets[:first])):
            if not target.passed_over or all(each.passed_over for each in self._targets):
                yield target

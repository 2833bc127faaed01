"""The slot that an admitted answer holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from specmesh.orchestrator.admission.controller import Admission


class Slot:
    """The slot of an admitted answer, freed at the latest when the block of ``slot`` ends."""

    def __init__(self, admission: Admission, left: Callable[[], None]) -> None:
        self._pace = admission.pace
        self._answer = self._pace.began(_now())
        self._left = left
        self.is_held = True
        """False once it is free."""

    def limit(self, num_tokens: int) -> None:
        """Record that the answer may get at most ``num_tokens``."""
        self._answer.limit = num_tokens

    def progressed(self, num_tokens: int) -> None:
        """Record that the answer got ``num_tokens``."""
        self._pace.progressed(self._answer, num_tokens, _now())

    def leave(self) -> None:
        """Free the slot once the mesh has finished, even if the client has not read everything."""
        if self.is_held:
            self.is_held = False
            self._pace.ended(self._answer, _now())
            self._left()


def _now() -> float:
    return asyncio.get_running_loop().time()

"""The ledger of limits applied to the current caller, with the event loop's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from specmesh.orchestrator.admission.limits import Ledger, Meter, Quota
from specmesh.serving import caller


class Accounts:
    """Keeps each caller of an orchestrator within ``limits``, whichever service it calls.

    It is checked before any work for a request, so that a caller over its limit costs nothing.
    """

    def __init__(self, limits: Quota | None = None) -> None:
        self._ledger = Ledger(limits or Quota())

    @contextmanager
    def answering(self, meter: Meter, num_request_bytes: int) -> Iterator[None]:
        """Count an answer for the caller while the block runs; ``meter`` reports what it uses.

        Raises ``ResourceExhausted`` with reason LIMIT_REACHED.
        """
        identity, now = caller.identity(), asyncio.get_running_loop().time
        self._ledger.begin(identity, meter, now(), num_request_bytes)
        try:
            yield
        finally:
            self._ledger.end(identity, meter, now())

    def read(self, num_request_bytes: int) -> None:
        """Charge the caller for a request that asks for no answer.

        Raises ``ResourceExhausted`` with reason LIMIT_REACHED.
        """
        now = asyncio.get_running_loop().time()
        self._ledger.read(caller.identity(), num_request_bytes, now)

"""The calls of one request to replicas of the target."""

from __future__ import annotations

import asyncio

from specmesh.orchestrator.replicas.calls.command_context import CommandContext
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.calls.verify.verify_call import Done, VerifyCall
from specmesh.orchestrator.replicas.calls.verify.verify_learning import VerifyLearning
from specmesh.orchestrator.replicas.pool.reservation import Reservation
from specmesh.orchestrator.strategies.commands import Verify
from specmesh.orchestrator.strategies.events import Verified


class VerifyCalls:
    """Requests verifications, of replicas that can hold the call's tokens."""

    def __init__(self, request: RequestContext) -> None:
        self._request = request
        self._learning = VerifyLearning(request)
        self._slots: list[Reservation] = []
        """Slots of verifications, all that are under way among them."""

    @property
    def num_cached_tokens(self) -> int:
        """Tokens that the replica which answered first already held in its KV cache."""
        return self._learning.num_cached_tokens or 0

    def begin(self, command: Verify, context: CommandContext, done: Done) -> VerifyCall:
        """Begin a verification. Unless it is cancelled, ``done`` is told the target's verdict, with
        the draft of its heads if one was requested; or ``AioRpcError`` or ``ServiceError`` once
        there is no replica left to try, or no time. It is told nothing before this returns."""
        shared = self._request, self._learning, self._slots
        verification = VerifyCall(*shared, command, context, done)
        verification.begin()
        return verification

    async def verify(self, command: Verify, context: CommandContext) -> Verified:
        """Return what ``done`` of ``begin`` is told, or raise it."""
        outcome: asyncio.Future[Verified] = asyncio.get_running_loop().create_future()

        def done(told: Verified | Exception) -> None:
            if outcome.done():  # by a cancellation that has yet to reach us
                return
            if isinstance(told, Verified):
                outcome.set_result(told)
            else:
                outcome.set_exception(told)

        verification = self.begin(command, context, done)
        try:
            return await outcome
        finally:
            verification.cancel()

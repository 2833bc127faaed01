"""One draft: attempts at drafters until the first tokens of one arrive, and then the rest.

A draft is only a guess: an attempt that fails before its first tokens is repeated at another
drafter, but never waits for a drafter to recover.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import TypeAlias

import grpc.aio

from specmesh.orchestrator.replicas.calls.command_context import CommandContext
from specmesh.orchestrator.replicas.calls.draft.draft_attempt import DraftAttempt
from specmesh.orchestrator.replicas.calls.draft.incoming_draft import Deliver
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.latencies.mesh_latencies import DRAFT_SECONDS
from specmesh.orchestrator.replicas.need import Need
from specmesh.orchestrator.replicas.retries.attempts import Attempts
from specmesh.orchestrator.strategies.commands import Draft
from specmesh.orchestrator.strategies.events import Drafted

Done: TypeAlias = Callable[[Exception | None], None]
"""Told that a draft has ended, with its error if it has failed."""


class DraftCall:
    """A draft that is under way: its levels go to ``deliver``, and ``done`` is told that it has
    ended.

    It is told what happens by the drafter and by the mesh's alarm, in the step of the event loop
    that reads it. It needs a task only between two attempts.
    """

    def __init__(
        self,
        request: RequestContext,
        command: Draft,
        context: CommandContext,
        deliver: Deliver,
        done: Done,
    ) -> None:
        self._request = request
        self._command = command
        self._context = context
        self._deliver = deliver
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._alarm = request.mesh.alarm
        self._deadline = min(request.deadline, self._loop.time() + DRAFT_SECONDS)
        pool = request.mesh.drafters
        kind = pool.kinds[command.drafter] if command.drafter < len(pool.kinds) else None
        self._attempts = Attempts(
            *(pool, request.prefix, self._deadline, Need(kind)), patient=False
        )
        self._attempt: DraftAttempt | None = None
        self._waiting: asyncio.Task[None] | None = None
        self._is_over = False

    def begin(self) -> None:
        """Ask a drafter."""
        try:
            reservation = self._attempts.reserve()
            shared = self._request, reservation, self._command, self._context
            self._attempt = attempt = DraftAttempt(*shared, self)
            attempt.send()
        except Exception as error:
            self._loop.call_soon(self._finish, error)
        else:
            self._alarm.add(self)

    def refuse(self, error: Exception) -> None:
        """End a draft that must not begin, for the reason ``error``."""
        self._finish(error)

    def free(self) -> None:
        """Free the slot, and stop the drafter before another request has to wait for it: ``cancel``
        will follow."""
        if self._attempt is not None:
            self._attempt.reservation.cancel()
            self._attempt.stop()

    def cancel(self) -> None:
        """End a draft that is not wanted any more; ``done`` is told nothing."""
        self._end()

    @property
    def due(self) -> float:
        """The time from which the next message is late; see ``Due``."""
        return inf if self._attempt is None else min(self._deadline, self._attempt.due)

    def rings(self, now: float) -> None:
        """Give up the attempt; see ``Due``."""
        if self._attempt is not None and self.due <= now:
            self._attempt.give_up()

    def drafted(self, attempt: DraftAttempt, drafted: Drafted) -> None:
        """Pass on levels of the draft; see ``Draftsman``."""
        if not attempt.has_started:
            self._attempts.answered(attempt.peer, attempt.began)
            self._request.prefix.seen_by(attempt.peer.identity, self._context.num_committed)
        else:
            outliers = self._request.mesh.drafters.outliers
            outliers.heard(attempt.peer.address, self._loop.time())
        self._deliver(drafted)

    def waits(self, attempt: DraftAttempt) -> None:
        """Await the next message; see ``Draftsman``."""
        if attempt is self._attempt:
            self._alarm.add(self)

    def ended(self, attempt: DraftAttempt, error: Exception | None) -> None:
        """Finish, or try another drafter if this one has failed before its first tokens; see
        ``Draftsman``."""
        self._attempt = None
        self._alarm.discard(self)
        if isinstance(error, grpc.aio.AioRpcError):
            try:
                self._attempts.failed(attempt.peer, attempt.began, error)
            except Exception as useless:
                self._finish(useless)
                return
            if not attempt.has_started:
                self._waiting = asyncio.create_task(self._retry())
                return
        self._finish(error)

    async def _retry(self) -> None:
        try:
            await self._attempts.pause()
        except Exception as error:
            self._waiting = None
            self._finish(error)
        else:
            self._waiting = None
            if not self._is_over:
                self.begin()

    def _finish(self, error: Exception | None) -> None:
        if not self._is_over:
            self._end()
            self._done(error)

    def _end(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._attempt is not None:
            self._alarm.discard(self)
            self._attempt.cancel()
            self._attempt = None
        if self._waiting is not None:
            self._waiting.cancel()
        self._attempts.close()

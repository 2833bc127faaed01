"""One verification: attempts at replicas, and a hedge of each that is late, until one answers.

Verify is a pure function, so a failed call is retried on another replica, and a late call is
hedged: sent to a second replica as well, and the first answer wins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import TypeAlias

import grpc.aio

from specmesh.decoding.trees.tree import EMPTY
from specmesh.mesh.v1alpha1 import verifier_pb2
from specmesh.orchestrator.replicas.calls.command_context import CommandContext
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.calls.verify.verify_attempt import VerifyAttempt
from specmesh.orchestrator.replicas.calls.verify.verify_learning import VerifyLearning
from specmesh.orchestrator.replicas.calls.verify.verify_replicas import attempts_at
from specmesh.orchestrator.replicas.pool.reservation import Reservation
from specmesh.orchestrator.replicas.retries.faults import is_full
from specmesh.orchestrator.replicas.transport.peer import Peer
from specmesh.orchestrator.strategies.commands import Verify
from specmesh.orchestrator.strategies.events import Verified
from specmesh.serving import conventions as names
from specmesh.serving.errors import DeadlineExceededStatus
from specmesh.serving.metrics import HEDGES

Done: TypeAlias = Callable[[Verified | Exception], CommandContext | None]
"""Receives the verdict of a verification, or the error of one that has none. If there is more to
come and it is wanted, returns the context of the next verdict, for which the strategy has committed
all tokens so far."""

_hedges = HEDGES.instrument()


class VerifyCall:
    """A verification that is under way; its outcome goes to ``done``.

    It is told what happens by replicas and by the mesh's alarm, in the step of the event loop that
    reads it. Only while no replica can be tried does it need a task. ``slots`` are those of all
    verifications of the request.
    """

    def __init__(
        self,
        request: RequestContext,
        learning: VerifyLearning,
        slots: list[Reservation],
        command: Verify,
        context: CommandContext,
        done: Done,
    ) -> None:
        self._request = request
        self._mesh = request.mesh
        self._pool = request.mesh.verifiers
        self._latencies = request.mesh.latencies
        self._learning = learning
        self._slots = slots
        self._command = command
        self._context = context
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._attempts = attempts_at(request, command, context)
        self._first: VerifyAttempt | None = None
        self._hedge: VerifyAttempt | None = None
        self._has_hedged = False
        """True if the first attempt has been hedged."""
        self._late_s = self._late_at = self._hedge_late_at = inf
        self._waiting: asyncio.Task[None] | None = None
        """Waits until a replica can be tried."""
        self._is_over = False
        self._mesh.admission.num_tokens_in_flight += len(command.tree) + 1

    def begin(self) -> None:
        """Send the verification, at once if a replica is ready."""
        if self._attempts.has_ready_replica:
            self._try()
        else:
            self._waiting = asyncio.create_task(self._wait())

    def free(self) -> None:
        """Free the slots, so that another call may take them: ``cancel`` will follow."""
        for attempt in self._under_way:
            attempt.reservation.cancel()

    def cancel(self) -> None:
        """End a verification whose outcome is not wanted; ``done`` is told nothing."""
        self._end()

    @property
    def due(self) -> float:
        """The time at which to look at it next; see ``Due``."""
        return min([self._late_at, *[attempt.given_up_at for attempt in self._under_way]])

    def rings(self, now: float) -> None:
        """Give up attempts, and hedge the first if it is late; see ``Due``."""
        for attempt in self._under_way:
            if attempt.given_up_at <= now:
                attempt.give_up()
        if not self._is_over and self._first is not None and self._late_at <= now:
            if self._may_hedge(self._first.peer):
                self._late_at = inf
                self._request.context.run(self._try_elsewhere, self._first.peer)
            else:
                self._late_at = now + self._late_s

    def answered(
        self, attempt: VerifyAttempt, verified: Verified, response: verifier_pb2.VerifyResponse
    ) -> None:
        """Pass on an answer; see ``Judge``."""
        request, num_committed = self._request, self._context.num_committed
        try:
            pace = self._learning.answered(attempt, response, self._attempts.began)
            self._attempts.answered(attempt.peer, attempt.began, pace)
            # A replica can name the blocks of a series of tokens only once that has ended.
            if not (attempt.is_further and verified.more):
                num_seen = num_committed + len(verified.collected)
                request.prefix.seen_by(attempt.peer.identity, num_seen)
            if request.logprobs is not None:
                request.logprobs.learn(num_committed, self._command, verified.verdict)
        except Exception as error:
            self._finish(error, attempt)
            return
        self._mesh.hedges.earn()
        if verified.more:
            self._pass_on(verified, attempt)
        else:
            self._finish(verified, attempt)

    def failed(self, attempt: VerifyAttempt, error: grpc.aio.AioRpcError) -> None:
        """Leave the answer to the other attempt or to a later one, if that may help; see
        ``Judge``."""
        if self._is_over:
            return
        now = self._loop.time()
        if now >= self._request.deadline:
            status = DeadlineExceededStatus("DEADLINE", "the request's deadline has passed")
            status.__cause__ = error
            self._finish(status, attempt)
            return
        try:
            self._attempts.failed(attempt.peer, attempt.began, error)
        except Exception as useless:
            self._finish(useless, attempt)
            return
        # One that refuses what others take says nothing about the room of the mesh.
        if is_full(error) and not self._attempts.has_untried:
            self._mesh.admission.refused(now)
        self._forget(attempt)
        if not self._under_way:
            self._end_race()
            self._waiting = asyncio.create_task(self._wait(after_failure=True))

    def broke(self, error: Exception) -> None:
        """End the verification; see ``Judge``."""
        self._finish(error)

    @property
    def _under_way(self) -> list[VerifyAttempt]:
        return [each for each in (self._first, self._hedge) if each is not None]

    def _try(self) -> None:
        """Make an attempt."""
        try:
            self._first = attempt = self._attempt(self._reserve())
            attempt.send(hedge=False)
        except Exception as error:
            self._loop.call_soon(self._finish, error)
            return
        self._await(attempt)

    def _await(self, attempt: VerifyAttempt) -> None:
        """Await the answer to the first ``attempt``."""
        self._late_s = self._learning.late_after(attempt)
        self._late_at = attempt.began + self._late_s
        self._mesh.alarm.add(self)

    def _try_elsewhere(self, late: Peer) -> None:
        """Make a second attempt beside that at a ``late`` replica."""
        self._has_hedged = True
        try:
            self._hedge = attempt = self._attempt(self._attempts.reserve_another(late))
            attempt.send(hedge=True)
            self._hedge_late_at = attempt.began + self._learning.late_after(attempt)
        except Exception as error:
            self._finish(error)

    def _attempt(self, reservation: Reservation) -> VerifyAttempt:
        """Return an attempt at the replica of ``reservation``."""
        self._slots[:] = [*[each for each in self._slots if each.wanted], reservation]
        shared = self._request, reservation, self._command, self._context
        try:
            attempt = VerifyAttempt(*shared, self)
        except Exception:
            reservation.release()
            raise
        attempt.given_up_at = self._given_up_at(attempt)
        return attempt

    def _given_up_at(self, attempt: VerifyAttempt) -> float:
        num_ahead, num_late = attempt.peer.num_outstanding - 1, self._attempts.num_late
        given_up_s = self._learning.given_up_after(attempt, num_ahead, num_late)
        return min(self._request.deadline, attempt.began + given_up_s)

    def _reserve(self) -> Reservation:
        """Reserve a replica. While another verification of the request is under way, any free
        replica is preferred over one that holds the prefix, so that both run in parallel."""
        if any(each.wanted for each in self._slots):
            return self._attempts.reserve()
        return self._attempts.reserve(self._latencies.prefill.tokens_a_call)

    def _may_hedge(self, peer: Peer) -> bool:
        if not self._attempts.can_reserve_another(peer):
            return False
        # To wait for an ejected replica is useless, so this hedge needs no budget.
        if self._pool.outliers.is_ejected(peer.address):
            return True
        return self._mesh.hedges.spend()

    async def _wait(self, *, after_failure: bool = False) -> None:
        """Make an attempt once a replica can be tried, or once it may be tried again."""
        try:
            if after_failure:
                await self._attempts.pause()
            if not self._attempts.has_ready_replica:
                patience_s = self._pool.patience_s(has_begun=True)
                left_s = self._request.deadline - self._loop.time()
                await self._attempts.wait_ready(min(patience_s, left_s))
        except Exception as error:
            self._waiting = None
            self._finish(error)
        else:
            self._waiting = None
            if not self._is_over:  # a wait may end in spite of its cancellation
                self._try()

    def _pass_on(self, verified: Verified, attempt: VerifyAttempt) -> None:
        """Pass on a verdict of several, and await the next one of the same ``attempt``."""
        if self._is_over:
            return
        self._end_race(attempt)
        self._first = attempt
        context = self._done(verified)
        if context is None:  # nothing awaits the next one, which may arrive before it is cancelled
            self._end()
        if self._is_over or context is None:
            return
        self._context = context
        num_left = self._command.num_further - len(verified.own_tokens)
        command = self._command
        self._command = Verify(
            *(command.task, (), EMPTY), num_further=num_left, may_wait=command.may_wait
        )
        if self._attempts.num_failed:  # to each token its own
            self._attempts.close()
            self._attempts = attempts_at(self._request, self._command, context)
        self._attempts.need = self._request.need.of_tokens(context.num_committed)
        attempt.go_on(self._command, context)
        self._attempts.began = attempt.began
        attempt.given_up_at = self._given_up_at(attempt)
        self._await(attempt)

    def _finish(self, outcome: Verified | Exception, decisive: VerifyAttempt | None = None) -> None:
        """Pass on the outcome, which an attempt may have been ``decisive`` for."""
        if not self._is_over:
            self._end(decisive)
            self._done(outcome)

    def _end(self, decisive: VerifyAttempt | None = None) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._end_race(decisive)
        if self._waiting is not None:
            self._waiting.cancel()
        self._mesh.admission.num_tokens_in_flight -= len(self._command.tree) + 1
        self._attempts.close()

    def _end_race(self, decisive: VerifyAttempt | None = None) -> None:
        """End the attempts that are under way; of two, only the other may have been decisive."""
        self._mesh.alarm.discard(self)
        self._late_at = inf
        if self._has_hedged:
            self._has_hedged = False
            is_hedge = decisive is not None and decisive is self._hedge
            overtaken = self._first if is_hedge else None
            # Where the hedge is late too, all replicas are slow, and chance decides.
            if overtaken is not None and self._loop.time() <= self._hedge_late_at:
                self._attempts.overtaken(overtaken.peer, overtaken.began)
            _hedges.add(1, {names.HEDGE_WON: overtaken is not None})
        for attempt in self._under_way:
            self._forget(attempt)
            if attempt is not decisive:
                attempt.cancel()

    def _forget(self, attempt: VerifyAttempt) -> None:
        if attempt is self._first:
            self._first = None
        else:
            self._hedge = None

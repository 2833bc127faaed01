"""Calls to the mesh on behalf of one request: retried where that is safe, traced, bounded.

Verify is a pure function and Draft only a guess, so both may be repeated anywhere. Every
call has a deadline: its own cap, or what is left of the request's if that is sooner.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field

import grpc
import grpc.aio
from opentelemetry.context import Context

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.bonus import MAX_BONUS_CANDIDATES
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.decoding.tree import TokenTree
from specmesh.orchestrator.mesh.assessments import Assessments
from specmesh.orchestrator.mesh.attempts import Attempts
from specmesh.orchestrator.mesh.drafts import DraftPart, draft_sampling, read_part
from specmesh.orchestrator.mesh.exchanges import Exchange, call_error
from specmesh.orchestrator.mesh.latency import Latencies
from specmesh.orchestrator.mesh.peer import Peer
from specmesh.orchestrator.mesh.pool import Pool, Reservation
from specmesh.orchestrator.mesh.prefix import CommittedPrefix
from specmesh.orchestrator.strategies.base import (
    Assess,
    Assessed,
    Capacity,
    Draft,
    Drafted,
    Released,
    TaskId,
    Verify,
)
from specmesh.serving.errors import DeadlineExceeded, FailedPrecondition, Unavailable
from specmesh.serving.telemetry import client_span
from specmesh.serving.verdicts import read_verdict
from specmesh.serving.wire import write_sampling, write_stop, write_tree
from specmesh.v1 import (
    confidence_pb2,
    drafter_pb2,
    model_pb2,
    sampling_pb2,
    verifier_pb2,
)

log = logging.getLogger(__name__)

VERIFY_SECONDS = 60.0
"""Cap of one Verify: a long prefill on a busy replica, not a hang."""
DRAFT_SECONDS = 10.0
"""Cap of one Draft, every try of it: past it the round goes on without one."""
MAX_READ_TOKENS = 8
"""Of the text, beside what is drafted, in drafts that tell how fast the drafter is."""
NO_VERIFIER_SECONDS = 5.0
"""How long a request waits for a replica of the target to come (back)."""

DraftExchange = Exchange[drafter_pb2.DraftEachRequest, drafter_pb2.DraftEachResponse]

VERIFY_METHOD = "specmesh.v1.VerifierService/Verify"
DRAFT_METHOD = "specmesh.v1.DrafterService/Draft"


@dataclass(frozen=True, slots=True)
class Mesh:
    """The pools that an orchestrator works with, and how fast they have been."""

    verifiers: Pool
    drafters: Pool
    filters: Pool
    """Replicas of the confidence service."""
    latencies: Latencies = field(default_factory=Latencies)
    dice: random.Random = field(default_factory=random.SystemRandom)
    """Seeds and ids come from here, unguessable unless a test wants its schedule again."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When a command was given: it is carried out a little later, and maybe repeated."""

    num_committed: int
    """The tokens, prompt included, that its path follows."""
    parent: Context
    """Of its spans."""


class Calls:
    """Everything one request asks of the mesh.

    ``deadline`` is the request's, by the event loop's clock; ``epoch`` the session's.
    ``target`` is the kind of the model that verifies, None if it is whichever is there. All
    calls raise ``AioRpcError`` or ``ServiceError`` once nobody is left to try, or no time.
    """

    def __init__(
        self,
        mesh: Mesh,
        prefix: CommittedPrefix,
        sampling: Sampling,
        *,
        vocab_size: int,
        deadline: float,
        target: str | None = None,
        epoch: int = 1,
        filter_options: confidence_pb2.FilterOptions | None = None,
    ) -> None:
        self._mesh = mesh
        self._assessments = Assessments(
            mesh.filters, mesh.latencies, prefix, filter_options, deadline
        )
        self._vocab_size = vocab_size
        self._target = target
        self._epoch = epoch
        self._prefix = prefix
        self._sampling = sampling
        self._sampling_message = write_sampling(sampling)
        self._deadline = deadline
        self._reservations: dict[TaskId, Reservation] = {}
        self._drafts: dict[TaskId, DraftExchange] = {}

    def moment(self, parent: Context) -> Moment:
        """Now, for a command that is given now."""
        return Moment(self._prefix.length, parent)

    def capacity(self) -> Capacity:
        """What strategies may count on at the moment."""
        kinds = self._mesh.drafters.kinds
        latencies = self._mesh.latencies
        return Capacity(
            num_verifiers=len(self._mesh.verifiers.ready),
            num_drafters=max(1, len(kinds)),
            target_s=latencies.target_s.value,
            drafter_s=latencies.drafter_s(kinds[0]).value if kinds else None,
            target_token_s=latencies.target_token_s.value,
        )

    @contextmanager
    def watched(self, watcher: Callable[[], None]) -> Iterator[None]:
        """Call ``watcher`` whenever a replica or drafter may have come or gone."""
        with self._mesh.verifiers.watched(watcher), self._mesh.drafters.watched(watcher):
            yield

    async def verify(self, command: Verify, moment: Moment) -> Verdict:
        """The target's verdict, from whichever replica gives it."""
        attempts = Attempts(self._mesh.verifiers, self._prefix, self._deadline, self._target)
        while True:
            await self._await_verifier()
            with self._reserve(command.task, attempts) as peer:
                try:
                    return await self._verify_once(peer, command, moment)
                except grpc.aio.AioRpcError as error:
                    failure = error
            if asyncio.get_running_loop().time() >= self._deadline:
                raise DeadlineExceeded("DEADLINE", "the request's deadline has passed")
            await attempts.failed(peer, failure)

    async def draft(self, command: Draft, moment: Moment) -> AsyncGenerator[Drafted, None]:
        """Levels of the draft as they come.

        A stream that has brought something is not repeated: what it brought still counts.
        """
        deadline = min(self._deadline, asyncio.get_running_loop().time() + DRAFT_SECONDS)
        kinds = self._mesh.drafters.kinds
        kind = kinds[command.drafter] if command.drafter < len(kinds) else None
        attempts = Attempts(self._mesh.drafters, self._prefix, deadline, kind)
        while True:
            started = False
            with self._reserve(command.task, attempts) as peer:
                try:
                    async with aclosing(self._draft_once(peer, command, moment, deadline)) as parts:
                        async for part in parts:
                            started = True
                            yield part
                    return
                except grpc.aio.AioRpcError as error:
                    if started:
                        raise
                    failure = error
            await attempts.failed(peer, failure)

    async def assess(
        self, command: Assess, moment: Moment
    ) -> AsyncGenerator[Assessed | Released, None]:
        """What to do with draft tokens; see ``Assessments.ask``."""
        asked = self._assessments.ask(command, moment.num_committed, moment.parent)
        async with aclosing(asked) as answers:
            async for answer in answers:
                yield answer

    def cancel(self, task: TaskId) -> None:
        """The task is about to be cancelled: others may have its place at a replica already.

        A draft is stopped at once, before a request that takes its place can reach the
        drafter and wait for it.
        """
        if reservation := self._reservations.get(task):
            reservation.cancel()
        if exchange := self._drafts.get(task):
            exchange.cancel()

    def commit(self, token_ids: Sequence[int]) -> None:
        """Paths of commands given from here on follow these tokens too."""
        self._prefix.commit(token_ids)

    @contextmanager
    def _reserve(self, task: TaskId, attempts: Attempts) -> Iterator[Peer]:
        reservation = self._reservations[task] = attempts.reserve()
        try:
            with reservation as peer:
                yield peer
        finally:
            self._reservations.pop(task, None)

    async def _verify_once(self, peer: Peer, command: Verify, moment: Moment) -> Verdict:
        attributes = {"specmesh.draft.tokens": len(command.tree)}
        with client_span(VERIFY_METHOD, peer.address, attributes, moment.parent) as (
            span,
            carrier,
        ):
            span.update_name("specmesh.verify")
            request = verifier_pb2.VerifyRequest(
                prefix=self._prefix.message(peer.address, moment.num_committed, command.path),
                tree=write_tree(command.tree, command.distributions),
                sampling=self._sampling_message,
                num_bonus_candidates=self._num_bonus_candidates(command),
            )
            message = verifier_pb2.VerifyEachRequest(request=request, trace_context=carrier)
            began = asyncio.get_running_loop().time()
            deadline = min(self._deadline, began + VERIFY_SECONDS)
            async with peer.verifications.ask(message, deadline) as exchange:
                response = (await exchange.read()).response
            seconds = asyncio.get_running_loop().time() - began
            self._mesh.latencies.target_s.add(seconds)
            # Tokens of the prefix that the replica lacked take as long as those of the tree.
            num_tokens = response.cost.num_computed_tokens or len(command.tree)
            self._mesh.latencies.target_token_s.add(num_tokens, seconds)
            self._mesh.latencies.target_load.add(_load(response.cost))
            self._prefix.seen_by(peer.address, moment.num_committed)
            span.set_attribute("specmesh.accepted.tokens", len(response.accepted_nodes))
            return self._read_verdict(response, moment.num_committed + len(command.path), peer)

    def _read_verdict(
        self, response: verifier_pb2.VerifyResponse, position: int, peer: Peer
    ) -> Verdict:
        """A replica that makes no sense is as good as gone: another is asked."""
        try:
            return read_verdict(response, self._sampling.seed, position)
        except InvalidField as error:
            log.warning("bad verdict", extra={"peer": peer.address, "reason": str(error)})
            raise call_error(grpc.StatusCode.UNAVAILABLE, f"bad verdict: {error}") from error

    def _num_bonus_candidates(self, command: Verify) -> int:
        at_random = self._sampling.mode is AcceptanceMode.REJECTION
        return MAX_BONUS_CANDIDATES if at_random and command.drafting_on else 0

    async def _draft_once(
        self, peer: Peer, command: Draft, moment: Moment, deadline: float
    ) -> AsyncGenerator[Drafted, None]:
        attributes = {"specmesh.draft.depth": command.depth}
        with client_span(DRAFT_METHOD, peer.address, attributes, moment.parent) as (span, carrier):
            span.update_name("specmesh.draft")
            request = drafter_pb2.DraftRequest(
                prefix=self._prefix.message(peer.address, moment.num_committed, command.path),
                tree=write_tree(command.tree),
                from_nodes=command.from_nodes,
                depth=command.depth,
                levels_per_message=command.levels_per_message,
                num_choices=command.num_choices,
                stop=write_stop(command.stop),
                sampling=self._draft_sampling(command.task),
                vocab_size=self._vocab_size,
            )
            message = drafter_pb2.DraftEachRequest(request=request, trace_context=carrier)
            num_levels = 0
            tree = command.tree
            async with peer.drafts.ask(message, deadline) as exchange:
                self._drafts[command.task] = exchange
                try:
                    while not (part := await exchange.read()).last:
                        self._prefix.seen_by(peer.address, moment.num_committed)
                        num_levels += command.levels_per_message
                        size, read = len(tree), self._read(part.response, tree, peer)
                        tree = read.tree
                        self._observe(part.response.cost, tree, size, peer)
                        yield Drafted(
                            task=command.task,
                            token_ids=tuple(part.response.token_ids),
                            parents=tuple(part.response.parents),
                            distributions=read.distributions,
                            choices=read.choices,
                            # A full draft needs no wait for the word that it is.
                            last=num_levels >= command.depth,
                        )
                finally:
                    # From here on the call is another request's.
                    self._drafts.pop(command.task, None)
            if num_levels < command.depth:
                yield Drafted(command.task, (), (), {}, last=True)

    def _draft_sampling(self, task: TaskId) -> sampling_pb2.SamplingParameters:
        own = draft_sampling(self._sampling, task, self._epoch)
        return self._sampling_message if own is self._sampling else write_sampling(own)

    def _observe(self, cost: model_pb2.ComputeCost, tree: TokenTree, size: int, peer: Peer) -> None:
        """Learn what a level takes, from the levels that were added to ``size`` nodes.

        Not where the drafter had to read much of the text first: a drafter that is tried now
        and then always has, and would look too slow ever to be used again.
        """
        num_levels, num_nodes = _num_levels(tree, size), len(tree) - size
        reads = cost.num_computed_tokens > 2 * num_nodes + MAX_READ_TOKENS
        if cost.forward_ms > 0 and num_levels and not reads:  # else it doesn't say
            self._mesh.latencies.drafter_s(peer.kind).add(cost.forward_ms / 1e3 / num_levels)

    def _read(self, response: drafter_pb2.DraftResponse, tree: TokenTree, peer: Peer) -> DraftPart:
        """A drafter that makes no sense costs the round, not the answer."""
        try:
            return read_part(response, tree, self._vocab_size, self._sampling.mode)
        except InvalidField as error:
            log.warning("bad draft", extra={"peer": peer.address, "reason": str(error)})
            raise Unavailable("BAD_DRAFT", f"drafter {peer.address}: {error}") from error

    async def _await_verifier(self) -> None:
        if not self._mesh.verifiers.ready:
            patience = min(NO_VERIFIER_SECONDS, self._deadline - asyncio.get_running_loop().time())
            with suppress(TimeoutError):  # the reservation that follows says who is missing
                await asyncio.wait_for(self._mesh.verifiers.wait_ready(), patience)
        served = self._mesh.verifiers.kinds
        if self._target is not None and served and self._target not in served:
            raise FailedPrecondition(
                "TARGET_REPLACED",
                f"the answer began with {self._target}, but the mesh serves {served[0]} by now",
            )


def _num_levels(tree: TokenTree, size: int) -> int:
    """How many levels ``tree`` has grown by since it had ``size`` nodes."""
    return sum(node > size for node in tree.path(len(tree)))


def _load(cost: model_pb2.ComputeCost) -> float:
    """How long a call waited, by how long it took; 1 at most."""
    return cost.queue_ms / cost.forward_ms if cost.queue_ms < cost.forward_ms else 1.0

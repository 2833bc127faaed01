"""What one request asks of the drafters.

A draft is only a guess: it is sent elsewhere when it fails before it has brought anything, but
nobody waits for a drafter to recover.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, closing, contextmanager

import grpc
import grpc.aio

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.tree import TokenTree
from specmesh.orchestrator.mesh.attempts import Attempts, Quarantined
from specmesh.orchestrator.mesh.drafts import DraftPart, draft_sampling, read_part
from specmesh.orchestrator.mesh.exchanges import Exchange, call_error
from specmesh.orchestrator.mesh.latency import DRAFT_SECONDS, Latencies
from specmesh.orchestrator.mesh.moment import Moment
from specmesh.orchestrator.mesh.peer import Peer
from specmesh.orchestrator.mesh.pool import Pool, Reservation
from specmesh.orchestrator.mesh.prefix import CommittedPrefix
from specmesh.orchestrator.strategies.base import Draft, Drafted, TaskId
from specmesh.serving.telemetry import client_span
from specmesh.serving.wire import write_sampling, write_stop, write_tree
from specmesh.v1 import drafter_pb2, model_pb2, sampling_pb2

log = logging.getLogger(__name__)

MAX_READ_TOKENS = 8
"""Of the text, beside what is drafted, in drafts that tell how fast the drafter is."""

METHOD = "specmesh.v1.DrafterService/Draft"

DraftExchange = Exchange[drafter_pb2.DraftEachRequest, drafter_pb2.DraftEachResponse]


class DraftCalls:
    """See the module. ``deadline`` is the request's, by the event loop's clock; ``epoch`` the
    session's."""

    def __init__(
        self,
        pool: Pool,
        latencies: Latencies,
        prefix: CommittedPrefix,
        sampling: Sampling,
        *,
        vocab_size: int,
        deadline: float,
        epoch: int,
    ) -> None:
        self._pool = pool
        self._latencies = latencies
        self._prefix = prefix
        self._sampling = sampling
        self._sampling_message = write_sampling(sampling)
        self._vocab_size = vocab_size
        self._deadline = deadline
        self._epoch = epoch
        self._reservations: dict[TaskId, Reservation] = {}
        self._exchanges: dict[TaskId, DraftExchange] = {}
        self._quarantined: Quarantined | None = None
        """Set once a draft has broken several drafters: the next would do so again."""

    async def ask(self, command: Draft, moment: Moment) -> AsyncGenerator[Drafted, None]:
        """Levels of the draft as they come.

        A stream that has brought something is not repeated: what it brought still counts.
        Raises ``AioRpcError`` or ``ServiceError``.
        """
        if self._quarantined is not None:
            raise self._quarantined
        deadline = min(self._deadline, _now() + DRAFT_SECONDS)
        kinds = self._pool.kinds
        kind = kinds[command.drafter] if command.drafter < len(kinds) else None
        attempts = Attempts(self._pool, self._prefix, deadline, kind, patient=False)
        try:
            with closing(attempts):
                async with aclosing(self._tries(command, moment, attempts, deadline)) as parts:
                    async for part in parts:
                        yield part
        except Quarantined as quarantined:
            self._quarantined = quarantined
            raise

    def cancel(self, task: TaskId) -> None:
        """The task is about to be cancelled: others may have its place already.

        The draft is stopped at once, before a request that takes its place can reach the
        drafter and wait for it.
        """
        if reservation := self._reservations.get(task):
            reservation.cancel()
        if exchange := self._exchanges.get(task):
            exchange.cancel()

    async def _tries(
        self, command: Draft, moment: Moment, attempts: Attempts, deadline: float
    ) -> AsyncGenerator[Drafted, None]:
        while True:
            started, began = False, _now()
            with self._reserve(command.task, attempts) as peer:
                try:
                    async with aclosing(self._try(peer, command, moment, deadline)) as parts:
                        async for part in parts:
                            if not started:
                                attempts.answered(peer, began)
                            started = True
                            yield part
                    return
                except grpc.aio.AioRpcError as error:
                    attempts.failed(peer, began, error)
                    if started:
                        raise
            await attempts.pause()

    @contextmanager
    def _reserve(self, task: TaskId, attempts: Attempts) -> Iterator[Peer]:
        reservation = self._reservations[task] = attempts.reserve()
        try:
            with reservation as peer:
                yield peer
        finally:
            self._reservations.pop(task, None)

    async def _try(
        self, peer: Peer, command: Draft, moment: Moment, deadline: float
    ) -> AsyncGenerator[Drafted, None]:
        attributes = {"specmesh.draft.depth": command.depth}
        with client_span(METHOD, peer.address, attributes, moment.parent) as (span, carrier):
            span.update_name("specmesh.draft")
            request = self._request(peer, command, moment)
            message = drafter_pb2.DraftEachRequest(request=request, trace_context=carrier)
            num_levels = 0
            tree = command.tree
            async with peer.drafts.ask(message, deadline) as exchange:
                self._exchanges[command.task] = exchange
                try:
                    while not (part := await self._next(exchange, request, peer, num_levels)).last:
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
                    self._exchanges.pop(command.task, None)
            if num_levels < command.depth:
                yield Drafted(command.task, (), (), {}, last=True)

    def _request(self, peer: Peer, command: Draft, moment: Moment) -> drafter_pb2.DraftRequest:
        return drafter_pb2.DraftRequest(
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

    def _draft_sampling(self, task: TaskId) -> sampling_pb2.SamplingParameters:
        own = draft_sampling(self._sampling, task, self._epoch)
        return self._sampling_message if own is self._sampling else write_sampling(own)

    async def _next(
        self,
        exchange: DraftExchange,
        request: drafter_pb2.DraftRequest,
        peer: Peer,
        num_levels: int,
    ) -> drafter_pb2.DraftEachResponse:
        """The next message, if it comes before a drafter would hardly ever take so long."""
        patience, began = self._latencies.drafts(peer.kind), _now()
        num_drafted = request.levels_per_message * len(request.from_nodes)
        num_sent = 0 if num_levels else len(request.prefix.token_ids) + len(request.tree.token_ids)
        num_most = num_sent + (0 if num_levels else request.prefix.base_length)
        part = await exchange.read(began + patience.given_up_after(num_most + num_drafted))
        if not part.last:
            patience.add(peer.address, num_sent + num_drafted, _now() - began)
        return part

    def _observe(self, cost: model_pb2.ComputeCost, tree: TokenTree, size: int, peer: Peer) -> None:
        """Learn what a level takes, from the levels that were added to ``size`` nodes.

        Not where the drafter had to read much of the text first: a drafter that is tried now
        and then always has, and would look too slow ever to be used again.
        """
        num_levels, num_nodes = _num_levels(tree, size), len(tree) - size
        reads = cost.num_computed_tokens > 2 * num_nodes + MAX_READ_TOKENS
        if cost.forward_ms > 0 and num_levels and not reads:  # else it doesn't say
            self._latencies.drafter_s(peer.kind).add(cost.forward_ms / 1e3 / num_levels)

    def _read(self, response: drafter_pb2.DraftResponse, tree: TokenTree, peer: Peer) -> DraftPart:
        """A drafter that makes no sense has broken, which costs the round, not the answer."""
        try:
            return read_part(response, tree, self._vocab_size, self._sampling.mode)
        except InvalidField as error:
            log.warning("bad draft", extra={"peer": peer.address, "reason": str(error)})
            raise call_error(grpc.StatusCode.INTERNAL, f"bad draft: {error}") from error


def _num_levels(tree: TokenTree, size: int) -> int:
    """How many levels ``tree`` has grown by since it had ``size`` nodes."""
    return sum(node > size for node in tree.path(len(tree)))


def _now() -> float:
    return asyncio.get_running_loop().time()

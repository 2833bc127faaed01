"""What comes of one call to a drafter, message by message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeAlias

import grpc

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.sampling import AcceptanceMode
from specmesh.decoding.tree import TokenTree
from specmesh.orchestrator.mesh.drafts import DraftPart, read_part
from specmesh.orchestrator.mesh.latency import Latencies
from specmesh.orchestrator.mesh.open_call import call_error
from specmesh.orchestrator.mesh.peer import Peer
from specmesh.orchestrator.strategies.base import Draft, Drafted
from specmesh.v1 import drafter_pb2, model_pb2

log = logging.getLogger(__name__)

Deliver: TypeAlias = Callable[[Drafted], None]
"""Takes levels of a draft."""

MAX_READ_TOKENS = 8
"""Of the text, beside what is drafted, in drafts that tell how fast the drafter is."""


class IncomingDraft:
    """The tree that ``peer`` grows for ``command``, asked for by ``request`` just now.

    Its levels go to ``deliver`` as they come, and ``latencies`` learn from them.
    """

    def __init__(
        self,
        peer: Peer,
        command: Draft,
        request: drafter_pb2.DraftRequest,
        latencies: Latencies,
        deliver: Deliver,
        *,
        vocab_size: int,
        mode: AcceptanceMode,
    ) -> None:
        self._peer = peer
        self._command = command
        self._tree = command.tree
        self._latencies = latencies
        self._deliver = deliver
        self._patience = latencies.drafts(peer.kind)
        self._vocab_size = vocab_size
        self._mode = mode
        self._num_levels = 0
        self._waiting_since = _now()
        # The first message tells of the text as well, which the drafter may have to read.
        self._num_sent = len(request.prefix.token_ids) + len(request.tree.token_ids)
        self._num_held = request.prefix.base_length
        self._num_drafted = request.levels_per_message * len(request.from_nodes)

    @property
    def next_by(self) -> float:
        """When the next message is late, for a drafter would hardly ever take so long; by the
        event loop's clock."""
        num_most = self._num_sent + self._num_held + self._num_drafted
        return self._waiting_since + self._patience.given_up_after(num_most)

    @property
    def _full(self) -> bool:
        return self._num_levels >= self._command.depth

    def take(self, message: drafter_pb2.DraftEachResponse) -> float | None:
        """See ``Take``. Raises ``AioRpcError`` if it makes no sense."""
        if not message.last:
            self._deliver(self._read(message.response))
            return self.next_by
        if not self._full:
            self._deliver(Drafted(self._command.task, (), (), {}, last=True))
        return None

    def _read(self, response: drafter_pb2.DraftResponse) -> Drafted:
        now = _now()
        self._patience.add(
            self._peer.address, self._num_sent + self._num_drafted, now - self._waiting_since
        )
        self._num_levels += self._command.levels_per_message
        size, part = len(self._tree), self._part(response)
        self._tree = part.tree
        self._observe(response.cost, size)
        self._waiting_since, self._num_sent, self._num_held = now, 0, 0
        return Drafted(
            task=self._command.task,
            token_ids=tuple(response.token_ids),
            parents=tuple(response.parents),
            distributions=part.distributions,
            choices=part.choices,
            # A full draft needs no wait for the word that it is.
            last=self._full,
        )

    def _part(self, response: drafter_pb2.DraftResponse) -> DraftPart:
        """A drafter that makes no sense has broken, which costs the round, not the answer."""
        try:
            return read_part(response, self._tree, self._vocab_size, self._mode)
        except InvalidField as error:
            log.warning("bad draft", extra={"peer": self._peer.address, "reason": str(error)})
            raise call_error(grpc.StatusCode.INTERNAL, f"bad draft: {error}") from error

    def _observe(self, cost: model_pb2.ComputeCost, size: int) -> None:
        """Learn what a level takes, from the levels that were added to ``size`` nodes.

        Not where the drafter had to read much of the text first: a drafter that is tried now
        and then always has, and would look too slow ever to be used again.
        """
        num_levels, num_nodes = _num_levels(self._tree, size), len(self._tree) - size
        reads = cost.num_computed_tokens > 2 * num_nodes + MAX_READ_TOKENS
        if cost.forward_ms > 0 and num_levels and not reads:  # else it doesn't say
            self._latencies.drafter_s(self._peer.kind).add(cost.forward_ms / 1e3 / num_levels)


def _num_levels(tree: TokenTree, size: int) -> int:
    """How many levels ``tree`` has grown by since it had ``size`` nodes."""
    return sum(node > size for node in tree.path(len(tree)))


def _now() -> float:
    return asyncio.get_running_loop().time()

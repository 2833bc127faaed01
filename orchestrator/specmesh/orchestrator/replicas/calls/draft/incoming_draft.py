"""The stream of responses to one drafter call, handled message by message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeAlias

import grpc

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.trees.tree import TokenTree
from specmesh.mesh.v1alpha1 import drafter_pb2
from specmesh.orchestrator.replicas.calls.draft.drafts import (
    DraftLimits,
    DraftPart,
    most_nodes,
    read_part,
)
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.latencies.observations import ReplicaCost, TimedDraft
from specmesh.orchestrator.replicas.transport.inbox import call_error
from specmesh.orchestrator.replicas.transport.peer import Peer
from specmesh.orchestrator.strategies.commands import Draft
from specmesh.orchestrator.strategies.events import Drafted

log = logging.getLogger(__name__)

Deliver: TypeAlias = Callable[[Drafted], None]
"""Receives levels of a draft."""


class IncomingDraft:
    """The draft that ``peer`` streams for ``command``, which ``asked`` was just sent for.

    The times of its levels go to the orchestrator's latencies.
    """

    def __init__(
        self,
        request: RequestContext,
        peer: Peer,
        command: Draft,
        asked: drafter_pb2.DraftRequest,
    ) -> None:
        self._request = request
        self._peer = peer
        self._command = command
        self._tree = command.tree
        self._patience = request.mesh.latencies.drafts(peer.kind)
        self._num_levels = 0
        self._waiting_since = _now()
        # The first message takes longer if the drafter must compute tokens of the prefix.
        self._num_sent = len(asked.prefix.token_ids) + len(asked.tree.token_ids)
        self._num_drafted = most_nodes(asked, asked.levels_per_message)
        self._limits = DraftLimits.of(asked, command.tree)
        self._is_probe = request.mesh.drafters.outliers.is_ejected(peer.address)

    @property
    def tree(self) -> TokenTree:
        """All nodes so far: the tree that the drafter was given, and what it has drafted."""
        return self._tree

    @property
    def next_by(self) -> float:
        """The time, by the event loop's clock, at which to give up the next message: the target
        waits for it, and could go on without."""
        num_tokens = self._num_sent + self._num_drafted
        step_s = self._request.mesh.latencies.target_s.value or 0.0
        bound_s = self._patience.missed_after(num_tokens, step_s, is_probe=self._is_probe)
        return self._waiting_since + bound_s

    @property
    def _full(self) -> bool:
        return self._num_levels >= self._command.depth

    def take(self, message: drafter_pb2.DraftEachResponse, deliver: Deliver) -> float | None:
        """Pass on the levels in a message; return the deadline of the next one, or None after the
        last.

        Raises ``AioRpcError`` for an invalid message.
        """
        if not message.last:
            deliver(self._read(message.response))
            return self.next_by
        if not self._full:
            deliver(Drafted(self._command.task, (), (), {}, last=True))
        return None

    def _read(self, response: drafter_pb2.DraftResponse) -> Drafted:
        now, self._is_probe = _now(), False
        size, part = len(self._tree), self._part(response)
        if part.cost.forward_s or not response.HasField("cost"):
            self._learn(now - self._waiting_since)
        self._num_levels += self._command.levels_per_message
        self._tree = part.tree
        self._observe(part.cost, size)
        self._waiting_since = now
        return Drafted(
            task=self._command.task,
            token_ids=tuple(response.token_ids),
            parents=tuple(response.parents),
            distributions=part.distributions,
            choices=part.choices,
            # At full depth there is no need to wait for the message that ends the draft.
            last=self._full,
        )

    def _learn(self, seconds: float) -> None:
        """Learn from a message that took a forward pass. Levels that a grammar forces take none,
        and the message after them may still have to read the prefix."""
        if not self._peer.has_left:
            self._patience.add(self._peer.address, self._num_sent + self._num_drafted, seconds)
        self._num_sent = 0

    def _part(self, response: drafter_pb2.DraftResponse) -> DraftPart:
        """Parse a message; an invalid one counts as the drafter's failure and ends the draft."""
        try:
            shared = self._request.vocab_size, self._request.sampling.mode
            return read_part(response, self._tree, self._limits, *shared)
        except InvalidField as error:
            log.warning("bad draft", extra={**self._peer.log_fields, "reason": str(error)})
            raise call_error(grpc.StatusCode.INTERNAL, f"bad draft: {error}") from error

    def _observe(self, cost: ReplicaCost, size: int) -> None:
        """Record the time of the levels added to ``size`` nodes."""
        num_levels, num_nodes = _num_levels(self._tree, size), len(self._tree) - size
        draft = TimedDraft(num_levels, num_nodes, cost)
        self._request.mesh.latencies.drafted(self._peer.kind, draft)


def _num_levels(tree: TokenTree, size: int) -> int:
    """Return by how many levels ``tree`` has grown since it had ``size`` nodes."""
    return sum(node > size for node in tree.path(len(tree)))


def _now() -> float:
    return asyncio.get_running_loop().time()

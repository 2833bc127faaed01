"""A simulated replica of the target."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from tests.schedules.models import VOCAB_SIZE, drafter_logits, state_after, target_logits
from tests.schedules.network import Network
from tests.schedules.replicas import Health, Replica, corrupted

from specmesh.decoding.acceptance import verify
from specmesh.decoding.drafting import draw_children
from specmesh.decoding.simulated import chained
from specmesh.mesh.v1alpha1 import cost_pb2, drafter_pb2, verifier_pb2
from specmesh.serving.verdicts import write_verdict
from specmesh.serving.wire import (
    read_distributions,
    read_sampling,
    read_tree,
    write_choices,
    write_distributions,
)

HEADS_DEPTH = 3
HEADS_AGREEMENT = 0.5


class Verifier(Replica):
    """Counts in ``asked`` the requests of each session."""

    service = "specmesh.mesh.v1alpha1.VerifierService"
    name = "target"

    def __init__(
        self,
        address: str,
        network: Network,
        health: Health,
        pace_s: float,
        asked: Callable[[str], None],
        has_heads: bool,
    ) -> None:
        self.heads_depth = HEADS_DEPTH if has_heads else 0
        super().__init__(address, network, health, pace_s)
        self._asked = asked

    def respond(self, message: bytes) -> Iterator[tuple[float, bytes]]:
        """See ``Replica``."""
        request = verifier_pb2.VerifyEachRequest.FromString(message).request
        self._asked(request.prefix.session_id)
        prefix = self.resolve(request.prefix)
        tree = read_tree(request.tree, VOCAB_SIZE)
        states = [state_after(prefix)]
        for token, parent in zip(tree.token_ids, tree.parents, strict=True):
            states.append(chained(states[parent], token))
        verdict = verify(
            tree,
            np.stack([target_logits(state) for state in states]),
            read_sampling(request.sampling),
            len(prefix),
            read_distributions(request.tree.draft_distributions),
            request.num_bonus_candidates,
        )
        cost = cost_pb2.ComputeCost(forward_ms=self._pace_s * 1e3, num_computed_tokens=len(states))
        response = write_verdict(verdict, cost)
        if self.heads_depth and request.HasField("next_draft"):
            end = verdict.accepted_nodes[-1] if verdict.accepted_nodes else 0
            state = chained(states[end], verdict.next_token)
            position = len(prefix) + tree.depths[end] + 1
            response.next_draft.CopyFrom(self._next_draft(request, state, position))
        if self.health.lies and self._dice.random() < self.health.lies:
            self._spoil(response)
        body = verifier_pb2.VerifyEachResponse(response=response).SerializeToString()
        yield self._pace_s, body

    def _next_draft(
        self, request: verifier_pb2.VerifyRequest, state: int, position: int
    ) -> drafter_pb2.DraftResponse:
        """A chain below the context that ``state`` names."""
        asked, response = request.next_draft, drafter_pb2.DraftResponse()
        sampling = replace(read_sampling(request.sampling), seed=asked.seed)
        for node in range(min(asked.depth, self.heads_depth)):
            logits = drafter_logits(state, HEADS_AGREEMENT)
            drawn = draw_children(logits, sampling, position + node, 1, asked.num_choices)
            (token,) = drawn.children
            response.token_ids.append(token)
            response.parents.append(node)
            if drawn.distribution is not None:
                response.draft_distributions.extend(write_distributions({node: drawn.distribution}))
            if drawn.choices is not None:
                response.choices.extend(write_choices({node: drawn.choices}))
                response.entropies.append(drawn.choices.entropy)
            state = chained(state, token)
        response.cost.forward_ms = self._pace_s * 100
        return response

    def _spoil(self, response: verifier_pb2.VerifyResponse) -> None:
        """Make it one that no replica of the target could have given."""
        match self._dice.randrange(4 if response.next_draft.token_ids else 3):
            case 0:
                response.next_token_id = VOCAB_SIZE + self._dice.randrange(1000)
            case 1:
                response.accepted_nodes.append(corrupted(1 << 20, self._dice))
            case 2:
                response.accepted_nodes.insert(0, 0)
            case 3:
                response.next_draft.token_ids[0] = corrupted(VOCAB_SIZE, self._dice)

"""A simulated replica of the target."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from tests.schedules.models import VOCAB_SIZE, state_after, target_logits
from tests.schedules.network import Network
from tests.schedules.replicas import Health, Replica, corrupted

from specmesh.decoding.acceptance import verify
from specmesh.decoding.simulated import chained
from specmesh.mesh.v1alpha1 import cost_pb2, verifier_pb2
from specmesh.serving.verdicts import write_verdict
from specmesh.serving.wire import read_distributions, read_sampling, read_tree


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
    ) -> None:
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
        if self.health.lies and self._dice.random() < self.health.lies:
            self._spoil(response)
        body = verifier_pb2.VerifyEachResponse(response=response).SerializeToString()
        yield self._pace_s, body

    def _spoil(self, response: verifier_pb2.VerifyResponse) -> None:
        """Make it one that no replica of the target could have given."""
        match self._dice.randrange(3):
            case 0:
                response.next_token_id = VOCAB_SIZE + self._dice.randrange(1000)
            case 1:
                response.accepted_nodes.append(corrupted(1 << 20, self._dice))
            case 2:
                response.accepted_nodes.insert(0, 0)

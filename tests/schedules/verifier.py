"""A simulated replica of the target, maybe with heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from tests.schedules.levels import Levels
from tests.schedules.models import VOCAB_SIZE, model_info, state_after, target_logits
from tests.schedules.network import Network
from tests.schedules.replicas import Health, Refused, Replica, corrupted
from tests.schedules.status import refusal

from specmesh.decoding.acceptance import verify
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.simulated.hashed import chained
from specmesh.mesh.v1alpha1 import cost_pb2, drafter_pb2, verifier_pb2
from specmesh.serving.codec.verdicts import write_verdict
from specmesh.serving.codec.wire import read_distributions, read_sampling, read_tree
from specmesh.serving.errors import FailedPreconditionStatus
from specmesh.v1 import model_pb2

HEADS_DEPTH = 4
HEADS_AGREEMENT = 0.6
"""How often a token of heads is the target's."""
HEADS_PACE = 0.1
"""Of a level of heads, in forwards of the target."""


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
        *,
        has_heads: bool,
        kv_capacity_tokens: int,
    ) -> None:
        super().__init__(address, network, health, pace_s)
        self._kv_capacity_tokens = kv_capacity_tokens
        self._asked = asked
        self._has_heads = has_heads

    @property
    def info(self) -> model_pb2.ModelInfo:
        """See ``Replica``."""
        info = model_info(self.name)
        info.kv_capacity_tokens = self._kv_capacity_tokens
        if self._has_heads:
            info.heads_depth = HEADS_DEPTH
        else:
            info.features.remove(model_pb2.MODEL_FEATURE_HEADS)
        return info

    def respond(self, message: bytes) -> Iterator[tuple[float, bytes]]:
        """See ``Replica``."""
        request = verifier_pb2.VerifyEachRequest.FromString(message).request
        self._asked(request.prefix.session_id)
        prefix = self.resolve(request.prefix)
        tree = read_tree(request.tree, VOCAB_SIZE)
        if 0 < self._kv_capacity_tokens < len(prefix) + len(tree):
            raise Refused(refusal(FailedPreconditionStatus("KV_CACHE_TOO_SMALL", "never")))
        states = [state_after(prefix)]
        for token, parent in zip(tree.token_ids, tree.parents, strict=True):
            states.append(chained(states[parent], token))
        sampling = read_sampling(request.sampling)
        verdict = verify(
            tree,
            np.stack([target_logits(state) for state in states]),
            *(sampling, len(prefix)),
            read_distributions(request.tree.draft_distributions),
            request.num_bonus_candidates,
        )
        cost = cost_pb2.ComputeCost(forward_ms=self._pace_s * 1e3, num_computed_tokens=len(states))
        response = write_verdict(verdict, cost)
        if self._has_heads and request.HasField("next_draft"):
            end = states[verdict.accepted_nodes[-1] if verdict.accepted_nodes else 0]
            position = len(prefix) + len(verdict.accepted_nodes) + 1
            begins = (chained(end, verdict.next_token), position)
            response.next_draft.CopyFrom(self._draft(request.next_draft, sampling, *begins))
        if self.health.lies and self._dice.random() < self.health.lies:
            self._spoil(response)
        body = verifier_pb2.VerifyEachResponse(response=response).SerializeToString()
        yield self._pace_s + response.next_draft.cost.forward_ms / 1e3, body

    def _draft(
        self, asked: verifier_pb2.NextDraft, sampling: Sampling, state: int, position: int
    ) -> drafter_pb2.DraftResponse:
        wanted = drafter_pb2.DraftRequest(num_choices=asked.num_choices)
        if asked.HasField("growth"):
            wanted.growth.CopyFrom(asked.growth)
            wanted.stop.CopyFrom(asked.stop)
        drawn_with = replace(sampling, seed=asked.seed)
        levels = Levels(wanted, drawn_with, HEADS_AGREEMENT, [state], [position])
        draft = drafter_pb2.DraftResponse()
        for _ in range(min(asked.depth, HEADS_DEPTH)):
            levels.write(draft)
            draft.cost.forward_ms += self._pace_s * HEADS_PACE * 1e3
            if levels.ended:
                break
        return draft

    def _spoil(self, response: verifier_pb2.VerifyResponse) -> None:
        """Make it one that no replica of the target could have given."""
        match self._dice.randrange(3 + bool(response.next_draft.token_ids)):
            case 0:
                response.next_token_id = VOCAB_SIZE + self._dice.randrange(1000)
            case 1:
                response.accepted_nodes.append(corrupted(1 << 20, self._dice))
            case 2:
                response.accepted_nodes.insert(0, 0)
            case 3:
                response.next_draft.token_ids[-1] = corrupted(VOCAB_SIZE, self._dice)

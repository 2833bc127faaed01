"""A simulated drafter, and a simulated confidence service."""

from __future__ import annotations

from collections.abc import Iterator

from tests.schedules.levels import Levels
from tests.schedules.models import VOCAB_SIZE, state_after
from tests.schedules.network import Network
from tests.schedules.replicas import Health, Replica, corrupted

from specmesh.decoding.simulated.hashed import chained
from specmesh.mesh.v1alpha1 import confidence_pb2, drafter_pb2
from specmesh.serving.codec.wire import read_sampling, read_tree


class Drafter(Replica):
    """Says what the target would in a share ``agreement`` of all places."""

    service = "specmesh.mesh.v1alpha1.DrafterService"

    def __init__(
        self,
        address: str,
        network: Network,
        health: Health,
        pace_s: float,
        name: str,
        agreement: float,
    ) -> None:
        self.name = name
        self._agreement = agreement
        super().__init__(address, network, health, pace_s)

    def respond(self, message: bytes) -> Iterator[tuple[float, bytes]]:
        """See ``Replica``."""
        request = drafter_pb2.DraftEachRequest.FromString(message).request
        prefix = self.resolve(request.prefix)
        tree = read_tree(request.tree, VOCAB_SIZE)
        states = [state_after(prefix)]
        for token, parent in zip(tree.token_ids, tree.parents, strict=True):
            states.append(chained(states[parent], token))
        positions = [len(prefix) + depth for depth in tree.depths]
        sampling = read_sampling(request.sampling)
        levels = Levels(request, sampling, self._agreement, states, positions)
        depth = self._dice.choice([request.depth, request.depth, self._dice.randint(1, 4)])
        depth = min(depth, request.depth)
        part, num_levels = drafter_pb2.DraftResponse(), 0
        for level in range(1, depth + 1):
            num_levels += 1
            part.cost.forward_ms += self._pace_s * 1e3
            levels.write(part)
            if level % request.levels_per_message == 0 or level == depth or levels.ended:
                if part.token_ids:
                    yield self._pace_s * num_levels, self._body(part)
                part, num_levels = drafter_pb2.DraftResponse(), 0
            if levels.ended:
                break
        yield 0.0, drafter_pb2.DraftEachResponse(last=True).SerializeToString()

    def _body(self, part: drafter_pb2.DraftResponse) -> bytes:
        if self.health.lies and self._dice.random() < self.health.lies:
            if self._dice.random() < 0.5:
                part.token_ids[0] = corrupted(VOCAB_SIZE, self._dice)
            else:
                part.parents[-1] = corrupted(1 << 20, self._dice)
        return drafter_pb2.DraftEachResponse(response=part).SerializeToString()


class Confidence(Replica):
    """Keeps a share of all tokens, by what the drafter says of them."""

    service = "specmesh.mesh.v1alpha1.ConfidenceService"

    def respond(self, message: bytes) -> Iterator[tuple[float, bytes]]:
        """See ``Replica``."""
        request = confidence_pb2.AssessEachRequest.FromString(message).request
        assessment = confidence_pb2.Assessment(threshold=0.5)
        for position in request.positions:
            score = position.probabilities[0] if position.probabilities else 0.0
            assessment.decisions.add(keep=score > 0.5, score=score)
        if self.health.lies and self._dice.random() < self.health.lies:
            assessment.decisions.add(keep=True)
        parts = [confidence_pb2.AssessResponse(assessment=assessment)]
        if not all(decision.keep for decision in assessment.decisions):
            parts.append(
                confidence_pb2.AssessResponse(release=confidence_pb2.Release(batch_size=1))
            )
        bodies = [
            confidence_pb2.AssessEachResponse(response=part).SerializeToString() for part in parts
        ]
        bodies.append(confidence_pb2.AssessEachResponse(last=True).SerializeToString())
        for body in bodies:
            yield self._pace_s, body

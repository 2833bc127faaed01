"""What a call asks of the replica that is to answer it."""

from __future__ import annotations

from dataclasses import dataclass

from specmesh.orchestrator.replicas.transport.peer import Peer
from specmesh.v1 import model_pb2


@dataclass(frozen=True, slots=True)
class Need:
    """The model, the features and the KV cache without which a replica can't answer.

    An answer begins only where every replica meets its need; those that join later need not.
    """

    kind: str | None = None
    """The kind of the model (``kind_of``); None for any."""
    features: frozenset[model_pb2.ModelFeature.ValueType] = frozenset()
    num_tokens: int = 0
    """How many tokens the KV cache must hold."""

    @property
    def is_any(self) -> bool:
        """Whether every replica will do."""
        return self == ANY

    def met_by(self, peer: Peer) -> bool:
        """Whether ``peer``, as far as is known, can answer."""
        return (
            (self.kind is None or self.kind == peer.kind)
            and self.num_tokens <= peer.kv_capacity_tokens
            and (not self.features or all(map(peer.can, self.features)))
        )

    def __str__(self) -> str:
        names = sorted(map(model_pb2.ModelFeature.Name, self.features))
        able = [name.removeprefix("MODEL_FEATURE_") for name in names]
        return " and ".join(
            (*able, *[f"a context of {self.num_tokens} tokens"] * bool(self.num_tokens))
        )


ANY = Need()
"""Asks for nothing."""

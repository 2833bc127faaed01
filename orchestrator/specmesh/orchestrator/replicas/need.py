"""Requirements of a call on the replica that answers it."""

from __future__ import annotations

from typing import NamedTuple

from specmesh.orchestrator.replicas.transport.peer import Peer
from specmesh.v1 import model_pb2


class Need(NamedTuple):
    """The model, the features and the KV cache that a replica needs to answer.

    An answer begins only if all current replicas meet its need; replicas that join later may not.
    """

    kind: str | None = None
    """The kind of the model (``kind_of``); None means any."""
    features: frozenset[model_pb2.ModelFeature.ValueType] = frozenset()
    num_tokens: int = 0
    """Tokens that the KV cache must be able to hold."""

    @property
    def abilities(self) -> tuple[object, ...]:
        """The part of the need that does not depend on the call."""
        return self.kind, self.features

    def of_tokens(self, num_tokens: int) -> Need:
        """Return this need for a call of ``num_tokens``."""
        return Need(self.kind, self.features, num_tokens)

    def able(self, peer: Peer) -> bool:
        """Return whether ``peer`` is known to be able to answer, if its KV cache is large enough.
        It may become so only when the pool of the peer changes."""
        return (self.kind is None or self.kind == peer.kind) and all(map(peer.can, self.features))

    def __str__(self) -> str:
        names = sorted(map(model_pb2.ModelFeature.Name, self.features))
        able = [name.removeprefix("MODEL_FEATURE_") for name in names]
        return " and ".join(
            (*able, *[f"a context of {self.num_tokens} tokens"] * bool(self.num_tokens))
        )


ANY = Need()
"""A need that every replica meets."""

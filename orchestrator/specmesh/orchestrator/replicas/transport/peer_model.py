"""The model that a replica serves, as it describes it to the orchestrator."""

from __future__ import annotations

import math
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specmesh.mesh.v1alpha1 import model_service_pb2
from specmesh.serving.templates.chat_template import ChatTemplate
from specmesh.v1 import model_pb2

if TYPE_CHECKING:
    from specmesh.mesh.v1alpha1.model_service_pb2_grpc import ModelServiceAsyncStub

_MOST_ROWS = 1 << 12
"""More rows than any forward has that a replica times at its start."""
HANDSHAKE_SECONDS = 5.0
"""Timeout of each call that asks a peer for its model."""


@dataclass(frozen=True, slots=True)
class PeerModel:
    """The model that a peer reported when it became ready."""

    info: model_pb2.ModelInfo
    tokenizer_json: str
    chat_template: ChatTemplate | None = None
    forward_times: tuple[tuple[int, float], ...] = ()
    """The rows and seconds of forwards that the process timed at its start."""
    features: frozenset[model_pb2.ModelFeature.ValueType] = field(init=False, repr=False)
    """Those in ``info``, which every call asks for several times."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", frozenset(self.info.features))


def kind_of(model: model_pb2.ModelInfo) -> str:
    """Return the identifier of a model, which is the same for all its replicas."""
    what = ":".join(filter(None, (model.weights_digest, model.dtype)))
    return f"{model.name}@{what}" if what else model.name


Admit = Callable[[PeerModel], Awaitable[str | None]]
"""Decides whether a peer fits this mesh; returns the reason if not, None if it does."""


async def fetch(
    stub: ModelServiceAsyncStub, described: model_service_pb2.GetModelResponse
) -> PeerModel:
    """Return the model that is ``described``, with the tokenizer and the chat template from
    ``stub``."""
    request = model_service_pb2.GetTokenizerRequest()
    pieces = [piece async for piece in stub.GetTokenizer(request, timeout=HANDSHAKE_SECONDS)]
    # Interned, so that all peers share one copy: a tokenizer may take 10 MB.
    tokenizer_json = sys.intern(b"".join(piece.data for piece in pieces).decode())
    times = tuple(_forward_times(described.forward_times))
    return PeerModel(described.model, tokenizer_json, _chat_template(pieces), times)


def _forward_times(
    described: Sequence[model_service_pb2.ForwardTime],
) -> Iterator[tuple[int, float]]:
    """Yield the rows and seconds of the forwards that are ``described``, but for those that cannot
    be: all answers learn from them."""
    for each in described:
        if 0 < each.num_rows <= _MOST_ROWS and 0 < each.forward_ms < math.inf:
            yield each.num_rows, each.forward_ms / 1e3


def _chat_template(
    pieces: Sequence[model_service_pb2.GetTokenizerResponse],
) -> ChatTemplate | None:
    for piece in pieces:
        if piece.HasField("chat_template"):
            template = piece.chat_template
            return ChatTemplate(
                template.source, dict(template.special_tokens), template.tool_source
            )
    return None

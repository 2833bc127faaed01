"""The models that a mesh serves."""

from __future__ import annotations

from dataclasses import dataclass

from specmesh.v1 import model_pb2, served_model_pb2


@dataclass(frozen=True, slots=True)
class Model:
    """A model that serves as target or drafter."""

    name: str
    vocab_size: int
    context_tokens: int
    end_of_text_ids: tuple[int, ...]
    tokenizer_fingerprint: str
    num_parameters: int
    backend: str
    weights_digest: str
    dtype: str
    revision: str


@dataclass(frozen=True, slots=True)
class Strategy:
    """A strategy of speculation. A ``lossless`` one never changes the target's text; an
    ``available`` one has all it needs in the mesh; ``options`` are the keyword arguments of
    ``generate`` that it uses."""

    name: str
    lossless: bool
    available: bool
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A target, its drafters, and the strategies for it. The formats are those in which it writes
    calls of tools and reasoning; "none" if it does not, or if they are not known."""

    target: Model
    drafters: tuple[Model, ...]
    num_verifiers: int
    strategies: tuple[Strategy, ...]
    default_strategy: str
    default_lookahead: int
    has_chat_template: bool = False
    tool_format: str = ""
    reasoning_format: str = ""


def served_model_from(message: served_model_pb2.ServedModel) -> ServedModel:
    """Convert a served model message."""
    return ServedModel(
        target=_model_from(message.target),
        drafters=tuple(map(_model_from, message.drafters)),
        num_verifiers=message.num_verifiers,
        strategies=tuple(map(_strategy_from, message.strategies)),
        default_strategy=message.default_strategy,
        default_lookahead=message.default_lookahead,
        has_chat_template=message.has_chat_template,
        tool_format=message.tool_format,
        reasoning_format=message.reasoning_format,
    )


def _strategy_from(message: served_model_pb2.StrategyInfo) -> Strategy:
    return Strategy(message.name, message.lossless, message.available, tuple(message.options))


def _model_from(message: model_pb2.ModelInfo) -> Model:
    return Model(
        name=message.name,
        vocab_size=message.vocab_size,
        context_tokens=message.context_tokens,
        end_of_text_ids=tuple(message.end_of_text_ids),
        tokenizer_fingerprint=message.tokenizer_fingerprint,
        num_parameters=message.num_parameters,
        backend=message.backend,
        weights_digest=message.weights_digest,
        dtype=message.dtype,
        revision=message.revision,
    )

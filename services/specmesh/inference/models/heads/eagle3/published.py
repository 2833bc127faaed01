"""The ``config.json`` of published EAGLE-3 heads: of ``speculators``, and of EAGLE's authors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from specmesh.inference.models.heads.eagle3.config import Eagle3Config, FuseNorm
from specmesh.inference.models.heads.eagle3.identity import HeadsTarget
from specmesh.inference.models.heads.eagle3.rotary import STATIC_ROPE_TYPES

LayerIds = Annotated[tuple[int, ...], Field(min_length=1)]
Size = Annotated[int, Field(ge=1)]

AUTHORS_DEPTH = 7
"""The depth to which the authors train their heads, which their files don't say."""


class Unsupported(ValueError):
    """The files ask for something that we don't compute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerFields:
    """The fields of a decoder layer in a configuration of Llama or Qwen3, by transformers'
    names."""

    model_type: Literal["llama", "qwen3"] = "llama"
    num_hidden_layers: Literal[1] = 1
    vocab_size: Size
    hidden_size: Size
    intermediate_size: Size
    num_attention_heads: Size
    num_key_value_heads: Size | None = None
    head_dim: Size | None = None
    hidden_act: Literal["silu"] = "silu"
    rms_norm_eps: float
    max_position_embeddings: Size
    attention_bias: bool = False
    mlp_bias: bool = False
    rope_theta: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None
    sliding_window: int | None = None
    use_sliding_window: bool = True

    def config(self, **others: Any) -> Eagle3Config:
        """Return the architecture of a head with this layer; ``others`` are further fields."""
        if self.sliding_window is not None and self.use_sliding_window:
            raise Unsupported(f"sliding_window {self.sliding_window}: only full attention")
        heads = self.num_attention_heads
        return Eagle3Config(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            inner_size=self.intermediate_size,
            num_heads=heads,
            num_kv_heads=self.num_key_value_heads or heads,
            head_dim=self.head_dim or self.hidden_size // heads,
            rope=self._rope(),
            max_position_embeddings=self.max_position_embeddings,
            norm_eps=self.rms_norm_eps,
            attention_bias=self.attention_bias,
            mlp_bias=self.mlp_bias,
            qk_norm=self.model_type == "qwen3",
            **others,
        )

    def _rope(self) -> dict[str, Any]:
        """Return the parameters of the rotary embedding, by newer or older names."""
        given = self.rope_parameters or self.rope_scaling or {}
        kind = given.get("rope_type", given.get("type", "default"))
        if kind not in STATIC_ROPE_TYPES:
            raise Unsupported(f"rope_type {kind!r}, which is none of {sorted(STATIC_ROPE_TYPES)}")
        return {"rope_theta": self.rope_theta, **given, "rope_type": kind}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proposal:
    speculative_tokens: int = Field(ge=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verifier:
    name_or_path: str | None = None
    architectures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _SpeculatorsConfig:
    proposal_methods: tuple[_Proposal, ...] = Field(min_length=1)
    verifier: _Verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class _Speculators:
    """``target_digests`` are ours: another reader ignores them."""

    speculators_config: _SpeculatorsConfig
    transformer_layer_config: LayerFields
    draft_vocab_size: Size
    norm_before_residual: bool
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    target_hidden_size: Size | None = None
    eagle_aux_hidden_state_layer_ids: LayerIds | None = None
    target_digests: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _EagleConfig:
    eagle_aux_hidden_state_layer_ids: LayerIds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Authors(LayerFields):
    draft_vocab_size: Size | None = None
    target_hidden_size: Size | None = None
    eagle_config: _EagleConfig = field(default_factory=_EagleConfig)


_SPECULATORS = TypeAdapter(_Speculators)
_AUTHORS = TypeAdapter(_Authors)


def is_speculators(config: Mapping[str, Any]) -> bool:
    """Return whether ``config`` is that of an EAGLE-3 head in the format of ``speculators``."""
    return config.get("speculators_model_type") == "eagle3"


def is_authors(config: Mapping[str, Any]) -> bool:
    """Return whether ``config`` is that of an EAGLE-3 head as EAGLE's authors publish them, and as
    SpecForge trains them. The authors' own names no architecture but that of the layer."""
    named = "Eagle3" in str(config.get("architectures"))
    return (named or "draft_vocab_size" in config) and "speculators_model_type" not in config


def of_speculators(
    config: Mapping[str, Any], target_layers: int
) -> tuple[Eagle3Config, HeadsTarget]:
    """Return the head that ``config`` describes, for a target of so many layers.

    Raises ``Unsupported`` and pydantic's ``ValidationError``.
    """
    given = _SPECULATORS.validate_python(config)
    fuse_norm: FuseNorm = "none"
    if given.norm_before_fc:
        fuse_norm = "whole"
    elif given.fc_norm:
        fuse_norm = "each"
    proposal, verifier = (
        given.speculators_config.proposal_methods[0],
        given.speculators_config.verifier,
    )
    head = given.transformer_layer_config.config(
        draft_vocab_size=given.draft_vocab_size,
        target_hidden_size=given.target_hidden_size or given.transformer_layer_config.hidden_size,
        layer_ids=given.eagle_aux_hidden_state_layer_ids or default_layer_ids(target_layers),
        max_depth=proposal.speculative_tokens,
        norm_before_residual=given.norm_before_residual,
        norm_output=given.norm_output,
        fuse_norm=fuse_norm,
    )
    return head, HeadsTarget(verifier.name_or_path, verifier.architectures, given.target_digests)


def of_authors(config: Mapping[str, Any], target_layers: int) -> tuple[Eagle3Config, HeadsTarget]:
    """Return the head that ``config`` describes, for a target of so many layers.

    Raises ``Unsupported`` and pydantic's ``ValidationError``.
    """
    given = _AUTHORS.validate_python(config)
    layer_ids = default_layer_ids(target_layers)
    if given.eagle_config.eagle_aux_hidden_state_layer_ids is not None:
        # SpecForge and SGLang name the layers whose output is meant.
        layer_ids = [each + 1 for each in given.eagle_config.eagle_aux_hidden_state_layer_ids]
    head = given.config(
        draft_vocab_size=given.draft_vocab_size or given.vocab_size,
        target_hidden_size=given.target_hidden_size or given.hidden_size,
        layer_ids=tuple(layer_ids),
        max_depth=AUTHORS_DEPTH,
    )
    return head, HeadsTarget()


def default_layer_ids(target_layers: int) -> Sequence[int]:
    """Return the states that a head reads if its files don't say: those that enter the third
    layer, the middle one, and the third-to-last."""
    return (2, target_layers // 2, target_layers - 3)


def speculators_config(head: Eagle3Config, target: HeadsTarget) -> dict[str, Any]:
    """Return the ``config.json`` of ``head`` in the format of ``speculators``."""
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": head.max_depth}],
            "verifier": {"name_or_path": target.name, "architectures": list(target.architectures)},
        },
        "draft_vocab_size": head.draft_vocab_size,
        "target_hidden_size": head.target_hidden_size,
        "eagle_aux_hidden_state_layer_ids": list(head.layer_ids),
        "norm_before_residual": head.norm_before_residual,
        "norm_before_fc": head.fuse_norm == "whole",
        "fc_norm": head.fuse_norm == "each",
        "norm_output": head.norm_output,
        "transformer_layer_config": {
            "model_type": "qwen3" if head.qk_norm else "llama",
            "vocab_size": head.vocab_size,
            "hidden_size": head.hidden_size,
            "intermediate_size": head.inner_size,
            "num_hidden_layers": 1,
            "num_attention_heads": head.num_heads,
            "num_key_value_heads": head.num_kv_heads,
            "head_dim": head.head_dim,
            "hidden_act": "silu",
            "rms_norm_eps": head.norm_eps,
            "max_position_embeddings": head.max_position_embeddings,
            "rope_parameters": dict(head.rope),
            "attention_bias": head.attention_bias,
            "mlp_bias": head.mlp_bias,
        },
        "target_digests": dict(target.digests),
    }

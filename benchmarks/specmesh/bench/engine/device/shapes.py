"""Models of known shapes with random weights, made on the device: nothing is downloaded or read."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from specmesh.inference.model import ModelDescription, ModelNotLoadable
from specmesh.inference.reasons import reason_of


class ModelShape(StrEnum):
    """Published models whose shapes can be had with random weights."""

    LLAMA_8B = "llama-3.1-8b"
    LLAMA_1B = "llama-3.2-1b"
    QWEN_8B = "qwen3-8b"
    TINY = "tiny"


_LLAMA = {
    "vocab_size": 128_256,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
}
_CONFIGS: dict[ModelShape, tuple[str, dict[str, Any]]] = {
    ModelShape.LLAMA_8B: (
        "llama",
        {
            **_LLAMA,
            "hidden_size": 4096,
            "intermediate_size": 14_336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "tie_word_embeddings": False,
        },
    ),
    ModelShape.LLAMA_1B: (
        "llama",
        {
            **_LLAMA,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "head_dim": 64,
            "tie_word_embeddings": True,
        },
    ),
    ModelShape.QWEN_8B: (
        "qwen3",
        {
            "vocab_size": 151_936,
            "hidden_size": 4096,
            "intermediate_size": 12_288,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 40_960,
            "tie_word_embeddings": False,
        },
    ),
    ModelShape.TINY: (
        "llama",
        {
            "vocab_size": 512,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 4096,
        },
    ),
}


def random_model(shape: ModelShape, dtype: str, device: str, seed: int) -> Any:
    """Return a model of ``shape`` with random weights of ``dtype`` on ``device``. Raises
    ``ModelNotLoadable`` if there is no such device, or no room on it."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    kind, sizes = _CONFIGS[shape]
    config = AutoConfig.for_model(kind, **sizes)
    torch.manual_seed(seed)
    try:
        with torch.device(device):
            model: Any = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
                config, dtype=getattr(torch, dtype), attn_implementation="sdpa"
            )
    except (AssertionError, ImportError, RuntimeError) as error:
        raise ModelNotLoadable(f"cannot make {shape} on {device!r}: {reason_of(error)}") from error
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model.eval()


def describe(model: Any, shape: ModelShape, dtype: str) -> ModelDescription:
    """Return the description of a random ``model``."""
    return ModelDescription(
        name=f"random-{shape}",
        vocab_size=model.config.vocab_size,
        context_tokens=model.config.max_position_embeddings,
        end_of_text_ids=(),
        tokenizer_json="",
        num_parameters=model.num_parameters(),
        backend="transformers",
        weights_digest=f"random-{shape}",
        dtype=dtype,
    )


def read_bytes(model: Any) -> int:
    """Return the bytes of weights that a forward pass of one token reads: all, but of an embedding
    that is not the output layer as well."""
    embedding = model.get_input_embeddings().weight
    total: int = sum(each.nbytes for each in model.parameters())
    is_tied = model.get_output_embeddings().weight is embedding
    return total if is_tied else total - int(embedding.nbytes)

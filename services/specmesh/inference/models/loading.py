"""Reads a model from a folder or a hub, and finds out what it is and whether it can be served."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.cache_utils import DynamicCache, DynamicLayer
from transformers.utils import CONFIG_NAME
from transformers.utils import logging as transformers_logging
from transformers.utils.hub import cached_file, extract_commit_hash

from specmesh.inference.model import ModelDescription, ModelNotLoadable
from specmesh.inference.models.chat_templates import template_of
from specmesh.inference.models.digests import digest_of_weights
from specmesh.inference.models.tensor_parallel import Ranks
from specmesh.serving.tokenizers import for_whole_texts


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What is read of any model: its configuration and its tokenizer."""

    name: str
    config: Any
    tokenizer: Any

    @property
    def is_quantized(self) -> bool:
        """Whether its weights are stored in fewer bits than they are computed with."""
        return bool(quantizations_of(self.config))

    def load(
        self, dtype: str, device: str, ranks: Ranks | None, attention: str = "sdpa"
    ) -> LoadedModel:
        """With its weights, or, with ``ranks``, this rank's part of them. Raises
        ``ModelNotLoadable``.

        ``attention`` is one of transformers' own. With "sdpa" all models look theirs up by name, so
        that ours can take its place; "eager" alone computes whatever a model asks of it, such as a
        cap on scores.
        """
        division = {}
        with _naming(self.name):
            if ranks is not None:
                division["distributed_config"] = ranks.division(self.name, self.config, device)
            model: Any = AutoModelForCausalLM.from_pretrained(
                self.name,
                dtype=getattr(torch, dtype),
                attn_implementation=attention,
                **division,
            )
        return LoadedModel(self.name, self.config, self.tokenizer, model)

    def describe_as(
        self,
        *,
        generation_config: Any,
        num_parameters: int,
        weights_digest: str,
        dtype: str,
        chat_template: str | None,
        **others: Any,
    ) -> ModelDescription:
        """What peers are told of the model; ``others`` are more fields. ``chat_template`` stands in
        for the model's own."""
        ids = generation_config.eos_token_id
        config = self.config.get_text_config()
        return ModelDescription(
            name=Path(self.name).name if Path(self.name).exists() else self.name,
            vocab_size=config.vocab_size,
            context_tokens=config.max_position_embeddings,
            end_of_text_ids=() if ids is None else (ids,) if isinstance(ids, int) else tuple(ids),
            tokenizer_json=for_whole_texts(self.tokenizer.backend_tokenizer).to_str(),
            num_parameters=num_parameters,
            weights_digest=weights_digest,
            dtype=dtype,
            revision=extract_commit_hash(cached_file(self.name, CONFIG_NAME), None) or "",
            chat_template=template_of(self.name, self.tokenizer, chat_template),
            **others,
        )


@dataclass(frozen=True, slots=True)
class LoadedModel(ModelFiles):
    """A model as transformers loads it, before anything is replaced in it."""

    model: Any

    def check_supported(self) -> None:
        """Raise ``ModelNotLoadable`` for a model that the engine can't run."""
        if not self.tokenizer.is_fast:
            raise ModelNotLoadable(f"{self.name!r} has no tokenizer.json (a fast tokenizer)")
        if not self.model.is_backend_compatible():
            kind = type(self.model).__name__
            raise ModelNotLoadable(
                f"{self.name!r}: {kind} has an attention that cannot be replaced"
            )
        layers = DynamicCache(config=self.config).layers
        if any(type(layer) is not DynamicLayer for layer in layers):
            raise ModelNotLoadable(
                f"{self.name!r} has layers without full attention: not supported"
            )

    def describe(
        self, dtype: str, ranks: Ranks | None, chat_template: str | None
    ) -> ModelDescription:
        """What peers are told of the model; its digest is that of the weights as they are now."""
        return self.describe_as(
            generation_config=self.model.generation_config,
            num_parameters=self.model.num_parameters(),
            backend="transformers",
            weights_digest=digest_of_weights(
                self.model, self.config, wanted=ranks is None or ranks.rank == 0
            ),
            dtype=dtype,
            chat_template=chat_template,
            interruptible=ranks is None,  # ranks must not disagree where to stop
        )

    def move_to(self, device: str) -> None:
        """Raises ``ModelNotLoadable`` if there is no such device, or no room on it."""
        try:
            self.model.to(device)
        except (AssertionError, ImportError, RuntimeError) as error:
            raise ModelNotLoadable(f"cannot put {self.name!r} on {device!r}: {error}") from error


def quantizations_of(config: Any) -> list[tuple[Any, str]]:
    """Where ``config`` says how weights are quantized: parts of it, and their fields."""
    fields = ("quantization_config", "compression_config")
    parts = {id(part): part for part in (config, config.get_text_config())}.values()
    return [(part, field) for part in parts for field in fields if getattr(part, field, None)]


def read_files(name: str) -> ModelFiles:
    """Read what a folder or a Hugging Face id says of its model, but for the weights.

    Raises ``ModelNotLoadable``.
    """
    # Standard error is for JSON lines.
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    with _naming(name):
        config = AutoConfig.from_pretrained(name)
        return ModelFiles(name, config, AutoTokenizer.from_pretrained(name))


def read_model(name: str, dtype: str, device: str, ranks: Ranks | None) -> LoadedModel:
    """Read a folder or a Hugging Face id; with ``ranks`` only this rank's part of the weights.

    Raises ``ModelNotLoadable``.
    """
    return read_files(name).load(dtype, device, ranks)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Say of which model reading failed."""
    try:
        yield
    except (OSError, ValueError, RuntimeError, ImportError, SafetensorError) as error:
        kind = "a folder" if Path(name).exists() else "a Hugging Face id (it is no folder)"
        raise ModelNotLoadable(f"cannot load {name!r} as {kind}: {error}") from error

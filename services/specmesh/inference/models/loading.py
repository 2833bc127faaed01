"""Reads a model from a folder or a hub, and finds out what it is and whether it can be served."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model as transformers loads it, before anything is replaced in it."""

    name: str
    config: Any
    model: Any
    tokenizer: Any

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
        """What peers are told of the model; its digest is that of the weights as they are now.

        ``chat_template`` stands in for the model's own.
        """
        return ModelDescription(
            name=Path(self.name).name if Path(self.name).exists() else self.name,
            vocab_size=self.config.vocab_size,
            context_tokens=self.config.max_position_embeddings,
            end_of_text_ids=self._end_of_text_ids(),
            tokenizer_json=self.tokenizer.backend_tokenizer.to_str(),
            num_parameters=self.model.num_parameters(),
            backend="transformers",
            weights_digest=digest_of_weights(
                self.model, self.config, wanted=ranks is None or ranks.rank == 0
            ),
            dtype=dtype,
            revision=extract_commit_hash(cached_file(self.name, CONFIG_NAME), None) or "",
            interruptible=ranks is None,  # ranks must not disagree where to stop
            chat_template=template_of(self.name, self.tokenizer, chat_template),
        )

    def move_to(self, device: str) -> None:
        """Raises ``ModelNotLoadable`` if there is no such device, or no room on it."""
        try:
            self.model.to(device)
        except (AssertionError, ImportError, RuntimeError) as error:
            raise ModelNotLoadable(f"cannot put {self.name!r} on {device!r}: {error}") from error

    def _end_of_text_ids(self) -> tuple[int, ...]:
        ids = self.model.generation_config.eos_token_id
        if ids is None:
            return ()
        return (ids,) if isinstance(ids, int) else tuple(ids)


def read_model(name: str, dtype: str, device: str, ranks: Ranks | None) -> LoadedModel:
    """Read a folder or a Hugging Face id; with ``ranks`` only this rank's part of the weights.

    Raises ``ModelNotLoadable``.
    """
    # Standard error is for JSON lines.
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        config = AutoConfig.from_pretrained(name)
        division = {}
        if ranks is not None:
            division["distributed_config"] = ranks.division(name, config, device)
        model: Any = AutoModelForCausalLM.from_pretrained(
            name,
            dtype=getattr(torch, dtype),
            # Without it some models look no attention up by name, and never call ours.
            attn_implementation="sdpa",
            **division,
        )
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        kind = "a folder" if Path(name).exists() else "a Hugging Face id (it is no folder)"
        raise ModelNotLoadable(f"cannot load {name!r} as {kind}: {error}") from error
    return LoadedModel(name, config, model, tokenizer)

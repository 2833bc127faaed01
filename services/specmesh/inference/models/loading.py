"""Reading of a model from a folder or the hub, its description, and the check that it can be
served."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig
from transformers.cache_utils import DynamicCache, DynamicLayer
from transformers.utils import CONFIG_NAME
from transformers.utils import logging as transformers_logging
from transformers.utils.hub import cached_file, extract_commit_hash

from specmesh.inference.model import (
    ModelDescription,
    ModelNotLoadable,
    check_revision,
)
from specmesh.inference.models.chat_templates import template_of
from specmesh.inference.models.checkpoint_tensors import check_tensors
from specmesh.inference.models.digests import digest_of_weights
from specmesh.inference.models.generation_config import Generation
from specmesh.inference.models.json_files import (
    check_context,
    extended_context,
    naming_tokenizer_file,
    naming_unknown_value,
    read_generation_config,
)
from specmesh.inference.models.tensor_parallel import Ranks
from specmesh.inference.reasons import in_file, reason_of
from specmesh.serving.process.logging import take_over
from specmesh.serving.templates.model_names import check_model, short_name
from specmesh.serving.templates.tokenizers import for_whole_texts

log = logging.getLogger(__name__)


TEXT_MODEL = {r"^language_model\.": "", r"^model\.language_model\.": "model."}
"""The names of a text model's tensors within a model of text and images, mapped to its own
names."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of a model, without its weights.

    ``config`` is the one in the files. Of a model of text and images only the text model is loaded,
    whose configuration is then a part of ``config``.
    """

    name: str
    revision: str | None
    config: Any
    tokenizer: Any
    generation: Generation

    @property
    def text_config(self) -> Any:
        """The configuration of the text model."""
        return self.config.get_text_config()

    @property
    def is_quantized(self) -> bool:
        """True if its weights are stored in fewer bits than they are computed with."""
        return bool(quantizations_of(self.config))

    def load(
        self, dtype: str, device: str, ranks: Ranks | None, attention: str = "sdpa"
    ) -> LoadedModel:
        """Load the model with its weights, or, with ``ranks``, with this rank's part of them.
        Raises ``ModelNotLoadable``, including when a tensor is missing or has another shape than in
        the configuration.

        ``attention`` is one of transformers' own. With "sdpa" all models look their attention up by
        name, so ours can replace it; only "eager" computes everything that a model may need, such
        as a cap on scores.
        """
        more: dict[str, Any] = {}
        if self.text_config is not self.config:
            config = copy.deepcopy(self.text_config)
            # Either may decide, depending on the architecture.
            tied = (getattr(each, "tie_word_embeddings", False) for each in (config, self.config))
            config.tie_word_embeddings = any(tied)
            more |= {"config": config, "key_mapping": TEXT_MODEL}
        with naming(self.name):
            if ranks is not None:
                division = ranks.division(self.name, self.text_config, device)
                more["distributed_config"] = division
            with _told_by_us(), naming_unknown_value(self.config.to_dict()):
                loaded: Any = AutoModelForCausalLM.from_pretrained(
                    self.name,
                    revision=self.revision,
                    dtype=getattr(torch, dtype),
                    attn_implementation=attention,
                    ignore_mismatched_sizes=True,  # ``check_tensors`` rejects them by name
                    output_loading_info=True,
                    **more,
                )
            model, found = loaded
            check_tensors(self.name, found)
        return LoadedModel(
            self.name, self.revision, self.config, self.tokenizer, self.generation, model
        )

    def describe_as(
        self,
        *,
        num_parameters: int,
        weights_digest: str,
        dtype: str,
        chat_template: str | None,
        **others: Any,
    ) -> ModelDescription:
        """Return the description of the model for peers; ``others`` are further fields.
        ``chat_template`` replaces the model's own."""
        config = self.text_config
        file = cached_file(self.name, CONFIG_NAME, revision=self.revision)
        return ModelDescription(
            name=short_name(self.name),
            vocab_size=config.vocab_size,
            context_tokens=config.max_position_embeddings,
            end_of_text_ids=self.generation.end_ids,
            tokenizer_json=for_whole_texts(self.tokenizer.backend_tokenizer).to_str(),
            num_parameters=num_parameters,
            weights_digest=weights_digest,
            dtype=dtype,
            revision=extract_commit_hash(file, None) or "",
            chat_template=template_of(self.name, self.tokenizer, chat_template),
            asked_in_vain=self.generation.asked_in_vain,
            generation_defaults=self.generation.defaults,
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
            raise ModelNotLoadable(f"{self.name!r}: the attention of {kind} cannot be replaced")
        layers = DynamicCache(config=self.config).layers
        if any(type(layer) is not DynamicLayer for layer in layers):
            raise ModelNotLoadable(
                f"{self.name!r} has layers without full attention, which is not supported"
            )

    def describe(
        self, dtype: str, ranks: Ranks | None, chat_template: str | None
    ) -> ModelDescription:
        """Return the description of the model for peers, with the digest of its current weights."""
        return self.describe_as(
            num_parameters=self.model.num_parameters(),
            backend="transformers",
            weights_digest=digest_of_weights(
                self.model, self.config, wanted=ranks is None or ranks.rank == 0
            ),
            dtype=dtype,
            chat_template=chat_template,
            interruptible=ranks is None,  # ranks must agree where to stop
        )

    def move_to(self, device: str) -> None:
        """Move the model to ``device``. Raises ``ModelNotLoadable`` if there is no such device, or
        no room on it."""
        try:
            self.model.to(device)
        except (AssertionError, ImportError, RuntimeError) as error:
            raise ModelNotLoadable(f"cannot put {self.name!r} on {device!r}: {error}") from error


def quantizations_of(config: Any) -> list[tuple[Any, str]]:
    """Return the parts of ``config`` that say how weights are quantized, and their fields."""
    fields = ("quantization_config", "compression_config")
    parts = {id(part): part for part in (config, config.get_text_config())}.values()
    return [(part, field) for part in parts for field in fields if getattr(part, field, None)]


def read_files(name: str, revision: str | None = None) -> ModelFiles:
    """Read the model in a folder or of a Hugging Face id, without its weights.

    ``revision`` is a branch, tag or commit of a Hugging Face id; None means its main branch. Raises
    ``ModelNotLoadable``.
    """
    # Standard error is for JSON lines.
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    take_over("transformers")
    try:
        check_model(name)
    except ValueError as error:
        raise ModelNotLoadable(f"cannot load {name!r}: {error}") from None
    with naming(name):
        check_revision(name, revision)
        with in_file(CONFIG_NAME):
            config = AutoConfig.from_pretrained(name, revision=revision)
            check_context(config.get_text_config())
        with naming_tokenizer_file(name, revision):
            tokenizer = AutoTokenizer.from_pretrained(name, revision=revision)
        generation = Generation.of(
            config_json=PreTrainedConfig.get_config_dict(name, revision=revision)[0],
            generation_json=read_generation_config(name, revision),
            tokenizer_id=tokenizer.eos_token_id,
            text_config=config.get_text_config(),
        )
        if generation.no_ids:
            log.warning(
                "end tokens are not in the vocabulary",
                extra={"model": name, "values": generation.no_ids},
            )
        if extended := extended_context(config.get_text_config()):
            log.warning(
                "context is not extended beyond max_position_embeddings",
                extra={"model": name, "context_tokens_by_rope_scaling": extended},
            )
        return ModelFiles(name, revision, config, tokenizer, generation)


def read_model(
    name: str, dtype: str, device: str, ranks: Ranks | None, revision: str | None = None
) -> LoadedModel:
    """Read the model in a folder or of a Hugging Face id; with ``ranks``, only this rank's part of
    the weights.

    Raises ``ModelNotLoadable``.
    """
    return read_files(name, revision).load(dtype, device, ranks)


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Turn any error into a ``ModelNotLoadable`` that names the model."""
    try:
        yield
    except ModelNotLoadable:
        raise
    except Exception as error:
        log.debug("loading failed", exc_info=True)
        kind = "a folder" if Path(name).exists() else "a Hugging Face id (no such folder)"
        raise ModelNotLoadable(f"cannot load {name!r} as {kind}: {reason_of(error)}") from error


@contextmanager
def _told_by_us() -> Iterator[None]:
    """Keep transformers from logging its report on tensors, a table in colours."""
    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)

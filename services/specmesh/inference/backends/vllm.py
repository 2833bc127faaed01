"""The backend of vLLM."""

from __future__ import annotations

from typing import Any

from specmesh.inference.backends.registry import Backend
from specmesh.inference.model import LanguageModel
from specmesh.inference.models.tensor_parallel import Ranks
from specmesh.inference.models.vllm.settings import VllmSettings


def load_target(settings: Any, ranks: Ranks | None) -> LanguageModel:  # noqa: ARG001
    """Load a target."""
    from specmesh.inference.models.chat_templates import read_template

    file = settings.chat_template
    return _load(settings, None if file is None else read_template(file))


def load_drafter(settings: Any) -> LanguageModel:
    """Load a drafter."""
    return _load(settings, None)


def _load(settings: Any, chat_template: str | None) -> LanguageModel:
    from specmesh.inference.models.vllm.model import VllmModel

    return VllmModel.load(
        settings.model,
        revision=settings.revision or None,
        dtype=settings.dtype,
        device=settings.device,
        num_threads=settings.num_threads,
        cache_bytes=settings.cache_bytes,
        tensor_parallel=settings.tensor_parallel_size,
        engine_options=settings.engine_options,
        chat_template=chat_template,
    )


BACKENDS = (
    Backend(
        name="vllm",
        load_target=load_target,
        load_drafter=load_drafter,
        target_settings=VllmSettings,
        drafter_settings=VllmSettings,
        reads="model",
        uses=frozenset({"chat_template", "revision"}),
    ),
)

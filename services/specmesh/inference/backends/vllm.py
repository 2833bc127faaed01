"""The backend of vLLM."""

from __future__ import annotations

from typing import Any

from specmesh.inference.backends.registry import Backend
from specmesh.inference.model import LanguageModel
from specmesh.inference.models.vllm.settings import VllmSettings


def load(settings: Any) -> LanguageModel:
    """Load a target or a drafter."""
    from specmesh.inference.models.chat_templates import given_template
    from specmesh.inference.models.vllm.model import VllmModel

    return VllmModel.load(
        settings.model,
        revision=settings.revision or None,
        dtype=settings.dtype,
        device=settings.device,
        num_threads=settings.threads,
        cache_bytes=settings.cache_bytes,
        tensor_parallel=settings.tensor_parallel_size,
        engine_options=settings.engine_options,
        chat_template=given_template(settings),
    )


BACKENDS = (
    Backend(
        name="vllm",
        summary="is vLLM",
        load_target=lambda settings, ranks: load(settings),  # noqa: ARG005
        load_drafter=load,
        target_settings=VllmSettings,
        drafter_settings=VllmSettings,
        reads="model",
        uses=frozenset({"chat_template", "revision"}),
        reasons={"heads": "vLLM's workers don't return the hidden states that heads start from"},
    ),
)

"""The backend of specmesh's own engine, for models that transformers loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specmesh.inference.backends.registry import Backend
from specmesh.inference.engine.heads.target_with_heads import TargetWithHeads
from specmesh.inference.model import LanguageModel, ModelNotLoadable
from specmesh.inference.models.tensor_parallel import Ranks

if TYPE_CHECKING:
    from specmesh.inference.models.heads.tensor_heads import TensorHeads
    from specmesh.inference.models.transformers_model import TransformersModel


def load_target(settings: Any, ranks: Ranks | None) -> LanguageModel:
    """Load a target, or this rank's part of it, with heads if ``settings`` name any."""
    from specmesh.inference.models.heads.serving import serve_heads

    folder = settings.heads
    if folder and ranks is not None:
        raise ModelNotLoadable(
            f"--heads needs the target in one process, not divided among {ranks.count} ranks"
        )

    def heads_for(target: Any, digest: str) -> TensorHeads:
        try:
            return serve_heads(folder, target, digest)
        except ModelNotLoadable as error:
            raise ModelNotLoadable(f"--heads: {error}") from error

    model = load_model(settings, ranks=ranks, heads_for=None if folder is None else heads_for)
    return model if model.heads is None else TargetWithHeads(model, model.heads)


def load_model(settings: Any, **options: Any) -> TransformersModel:
    """Load the model that ``settings`` name; ``options`` are further ones of its ``load``."""
    from specmesh.inference.models.chat_templates import given_template
    from specmesh.inference.models.transformers_model import TransformersModel

    return TransformersModel.load(
        settings.model,
        revision=settings.revision or None,
        dtype=settings.dtype,
        device=settings.device,
        cache_bytes=settings.cache_bytes,
        chat_template=given_template(settings),
        **options,
    )


BACKENDS = (
    Backend(
        name="transformers",
        load_target=load_target,
        load_drafter=load_model,
        reads="model",
        uses=frozenset({"chat_template", "heads", "revision", "ranks"}),
    ),
)

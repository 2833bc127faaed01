"""The backend of specmesh's own engine, for models that transformers loads."""

from __future__ import annotations

from typing import Any

from specmesh.inference.backends.registry import Backend
from specmesh.inference.engine.heads import TargetWithHeads
from specmesh.inference.model import LanguageModel, ModelNotLoadable
from specmesh.inference.models.tensor_parallel import Ranks


def load_target(settings: Any, ranks: Ranks | None) -> LanguageModel:
    """Load a target, or this rank's part of it, with heads if ``settings`` name any."""
    from specmesh.inference.models.chat_templates import read_template
    from specmesh.inference.models.heads.draft_heads import DraftHeads
    from specmesh.inference.models.heads.folder import load_heads
    from specmesh.inference.models.heads.neural import NeuralHeads
    from specmesh.inference.models.transformers_model import TransformersModel

    file, folder = settings.chat_template, settings.heads
    if folder and ranks is not None:
        raise ModelNotLoadable(
            f"--heads needs the target in one process, not divided among {ranks.count} ranks"
        )
    if folder and settings.units:
        raise ModelNotLoadable("--heads needs the target on one processing unit, without --units")

    def heads_for(target: Any, digest: str) -> DraftHeads:
        try:
            return load_heads(folder, target, digest)
        except ModelNotLoadable as error:
            raise ModelNotLoadable(f"--heads: {error}") from error

    model = TransformersModel.load(
        settings.model,
        revision=settings.revision or None,
        dtype=settings.dtype,
        device=settings.device,
        cache_bytes=settings.cache_bytes,
        ranks=ranks,
        chat_template=None if file is None else read_template(file),
        heads_for=None if folder is None else heads_for,
        units=settings.unit_specs,
    )
    return model if model.heads is None else TargetWithHeads(model, NeuralHeads(model.heads))


def load_drafter(settings: Any) -> LanguageModel:
    """Load a drafter."""
    from specmesh.inference.models.transformers_model import TransformersModel

    return TransformersModel.load(
        settings.model,
        revision=settings.revision or None,
        dtype=settings.dtype,
        device=settings.device,
        cache_bytes=settings.cache_bytes,
        units=settings.unit_specs,
    )


BACKENDS = (
    Backend(
        name="transformers",
        load_target=load_target,
        load_drafter=load_drafter,
        reads="model",
        uses=frozenset({"chat_template", "heads", "units", "revision", "ranks"}),
    ),
)

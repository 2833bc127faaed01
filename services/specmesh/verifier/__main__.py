"""The verifier process: ``specmesh serve verifier``.

Under torchrun its processes share one target: each holds a part of it, rank 0 serves.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import grpc.aio
from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from specmesh.inference.engine.heads import TargetWithHeads
from specmesh.inference.model import LanguageModel, ModelNotLoadable
from specmesh.inference.models.simulated.empty import EmptyModel
from specmesh.inference.models.simulated.settings import SimulatedTargetSettings
from specmesh.inference.models.tensor_parallel import Ranks, follow
from specmesh.inference.models.vllm.settings import VllmSettings
from specmesh.inference.service.features import VERIFYING
from specmesh.inference.service.prefixes import PrefixResolver
from specmesh.inference.service.service import (
    MODEL_SERVICE,
    REVISION,
    InferenceService,
    InferenceSettings,
    check_named,
)
from specmesh.mesh.v1alpha1 import verifier_pb2, verifier_pb2_grpc
from specmesh.serving.process.command_line import parse
from specmesh.serving.process.event_loop import run
from specmesh.serving.process.server import serve
from specmesh.verifier.servicer import VerifierServicer

log = logging.getLogger(__name__)


class VerifierSettings(InferenceSettings, SimulatedTargetSettings, VllmSettings):
    """Serves a replica of the target model, which checks drafts."""

    model_config = SettingsConfigDict(env_prefix="SPECMESH_VERIFIER__")

    backend: Literal["transformers", "vllm", "simulated", "empty"] = Field(
        "transformers",
        description="what computes; 'vllm' is the engine of that name, 'simulated' waits and says "
        "known tokens, 'empty' answers at once, to measure hops",
    )
    model: str = Field(
        "",
        validate_default=True,
        description="folder or Hugging Face id of the target; for transformers and vllm",
    )
    revision: str = Field("", description=REVISION)
    chat_template: Path | None = Field(
        None,
        description="file with a chat template in Jinja, in place of the target's own",
    )
    heads: Path | None = Field(
        None,
        description="folder with heads that were trained for this target; they draft what follows "
        "a verdict",
    )

    _check_model = field_validator("model")(check_named)


class VerifierService(InferenceService):
    """The ``Service`` of the verifier role; with ``ranks``, one of the processes that share the
    target."""

    role = "verifier"
    features = VERIFYING

    def __init__(self, settings: VerifierSettings, ranks: Ranks | None = None) -> None:
        super().__init__(settings)
        self._verifier = settings
        self._ranks = ranks

    @property
    def names(self) -> Sequence[str]:
        """Full names of the gRPC services."""
        return (
            verifier_pb2.DESCRIPTOR.services_by_name["VerifierService"].full_name,
            MODEL_SERVICE,
        )

    def load(self) -> LanguageModel:
        """Load the target, or this rank's part of it."""
        for refusal in self._refusals():
            raise ModelNotLoadable(refusal)
        if self._verifier.backend == "empty":
            return EmptyModel()
        if self._verifier.backend == "simulated":
            return self._verifier.simulated_target()
        is_vllm = self._verifier.backend == "vllm"
        model = self._load_vllm() if is_vllm else self._load_transformers()
        for settings in model.description.asked_in_vain:
            log.warning("generation settings not followed", extra={"settings": settings})
        return model

    def _refusals(self) -> Iterator[str]:
        """What of the settings doesn't go together."""
        settings, ranks = self._verifier, self._ranks
        if settings.backend != "transformers":
            backend = f"backend {settings.backend!r}"
            if ranks is not None:
                yield f"{backend} has nothing to divide among {ranks.count} ranks"
            if settings.chat_template and settings.backend != "vllm":
                yield f"{backend} has no use for a chat template"
            if settings.heads:
                yield f"{backend} has no use for --heads"
            if settings.units:
                yield f"--units: {backend} has nothing to divide"
            if settings.revision and settings.backend != "vllm":
                yield f"--revision: {backend} reads no model"
        yield from settings.refusals(settings.backend)
        if settings.heads and ranks is not None:
            yield f"--heads needs the target in one process, not divided among {ranks.count} ranks"
        if settings.heads and settings.units:
            yield "--heads needs the target on one processing unit, without --units"

    def _load_vllm(self) -> LanguageModel:
        from specmesh.inference.models.chat_templates import read_template
        from specmesh.inference.models.vllm.model import VllmModel

        file = self._verifier.chat_template
        return VllmModel.load(
            self._verifier.model,
            revision=self._verifier.revision or None,
            dtype=self._verifier.dtype,
            device=self._verifier.device,
            num_threads=self._verifier.num_threads,
            cache_bytes=self._verifier.cache_bytes,
            tensor_parallel=self._verifier.tensor_parallel_size,
            engine_options=self._verifier.engine_options,
            chat_template=None if file is None else read_template(file),
        )

    def _load_transformers(self) -> LanguageModel:
        from specmesh.inference.models.chat_templates import read_template
        from specmesh.inference.models.heads.draft_heads import DraftHeads
        from specmesh.inference.models.heads.folder import load_heads
        from specmesh.inference.models.heads.neural import NeuralHeads
        from specmesh.inference.models.transformers_model import TransformersModel

        file, folder = self._verifier.chat_template, self._verifier.heads

        def heads_for(target: Any, digest: str) -> DraftHeads:
            assert folder is not None
            try:
                return load_heads(folder, target, digest)
            except ModelNotLoadable as error:
                raise ModelNotLoadable(f"--heads: {error}") from error

        model = TransformersModel.load(
            self._verifier.model,
            revision=self._verifier.revision or None,
            dtype=self._verifier.dtype,
            device=self._verifier.device,
            cache_bytes=self._verifier.cache_bytes,
            ranks=self._ranks,
            chat_template=None if file is None else read_template(file),
            heads_for=None if folder is None else heads_for,
            units=self._verifier.unit_specs,
        )
        return model if model.heads is None else TargetWithHeads(model, NeuralHeads(model.heads))

    def follow(self) -> None:
        """Load this rank's part of the target, and compute with it until rank 0 ends."""
        from specmesh.inference.models.transformers_model import TransformersModel

        model = self.load()
        assert isinstance(model, TransformersModel)
        self._use_threads()
        model.follow()

    async def stop(self) -> None:
        """Stop the service, then the other ranks; if the engine is broken, losing rank 0 ends
        them."""
        await super().stop()
        if self._ranks is not None and not self.is_broken:
            await asyncio.to_thread(self._ranks.dismiss)

    def add_servicer(
        self, server: grpc.aio.Server, model: LanguageModel, prefixes: PrefixResolver
    ) -> None:
        """Add VerifierService."""
        servicer = VerifierServicer(model, self._engine, prefixes)
        verifier_pb2_grpc.add_VerifierServiceServicer_to_server(servicer, server)


if __name__ == "__main__":
    settings = parse(VerifierSettings, sys.argv[1:], "specmesh serve verifier")
    ranks = Ranks.from_environment()
    service = VerifierService(settings, ranks)
    if ranks is None or ranks.rank == 0:
        sys.exit(run(serve(settings, service)))
    sys.exit(follow(settings, service.role, service.follow))

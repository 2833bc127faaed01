"""The verifier process: ``specmesh serve verifier``.

Under torchrun its processes share one target: each rank holds a part of it, and rank 0 serves.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import grpc.aio
from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from specmesh.inference.backends.registry import (
    backends,
    named,
    reading_models,
    refusals,
    settings_of,
    summaries,
)
from specmesh.inference.grammar.grammars import Grammars
from specmesh.inference.model import LanguageModel, ModelNotLoadable
from specmesh.inference.models.tensor_parallel import Ranks, follow
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
from specmesh.serving.process.server import serve
from specmesh.serving.process.server_loop import run
from specmesh.verifier.servicer import VerifierServicer

log = logging.getLogger(__name__)


class VerifierBackend(BaseSettings):
    """The setting that other settings depend on; it is in a base class so that it is read first."""

    backend: Annotated[str, named("verifier")] = Field(
        "transformers", description=f"engine that computes: {summaries('verifier')}"
    )


class VerifierSettings(InferenceSettings, *settings_of("verifier"), VerifierBackend):  # type: ignore[misc]
    """The verifier: serves a replica of the target model, which verifies drafts."""

    model_config = SettingsConfigDict(env_prefix="SPECMESH_VERIFIER__")

    model: str = Field(
        "",
        validate_default=True,
        description="folder or Hugging Face id of the target; for backends "
        f"{reading_models('verifier')}",
    )
    revision: str = Field("", description=REVISION)
    chat_template: Path | None = Field(
        None,
        description="file with a Jinja chat template that replaces the target's own",
    )
    heads: Path | None = Field(
        None,
        description="folder with heads that were trained for this target; they draft the tokens "
        "after a verdict",
    )

    _check_model = field_validator("model")(check_named)


class VerifierService(InferenceService):
    """The ``Service`` of the verifier role; with ``ranks``, one of the processes that share the
    target."""

    role = "verifier"
    features = VERIFYING

    def __init__(self, settings: VerifierSettings, ranks: Ranks | None = None) -> None:
        super().__init__(settings, backends()[settings.backend])
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
        settings, backend, ranks = self._verifier, self.backend, self._ranks
        assert backend.load_target is not None
        if ranks is not None and "ranks" not in backend.uses:
            raise ModelNotLoadable(
                f"backend {backend.name!r} divides no target among {ranks.count} ranks"
            )
        for refusal in refusals(backend, self.role, settings):
            raise ModelNotLoadable(refusal)
        model = backend.load_target(settings, ranks)
        for asked in model.description.asked_in_vain:
            log.warning("generation settings not followed", extra={"settings": asked})
        return model

    def follow(self) -> None:
        """Load this rank's part of the target, and compute until rank 0 ends."""
        from specmesh.inference.models.transformers_model import TransformersModel

        model = self.load()
        assert isinstance(model, TransformersModel)
        self._use_threads()
        model.follow()

    async def stop(self) -> None:
        """Stop the service, then the other ranks. If the engine is broken, the loss of rank 0 ends
        them."""
        await super().stop()
        if self._ranks is not None and not self.is_broken:
            await asyncio.to_thread(self._ranks.dismiss)

    def add_servicer(
        self,
        server: grpc.aio.Server,
        model: LanguageModel,
        prefixes: PrefixResolver,
        grammars: Grammars | None,
    ) -> None:
        """Add VerifierService."""
        servicer = VerifierServicer(model, self._engine, prefixes, grammars)
        verifier_pb2_grpc.add_VerifierServiceServicer_to_server(servicer, server)


if __name__ == "__main__":
    settings = parse(VerifierSettings, sys.argv[1:], "specmesh serve verifier")
    ranks = Ranks.from_environment()
    service = VerifierService(settings, ranks)
    if ranks is None or ranks.rank == 0:
        sys.exit(run(serve(settings, service)))
    sys.exit(follow(settings, service.role, service.follow))

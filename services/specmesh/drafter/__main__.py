"""The drafter process: ``specmesh serve drafter``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import grpc.aio
from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from specmesh.drafter.servicer import DrafterServicer
from specmesh.inference.backends.registry import (
    backends,
    check_there,
    named,
    names,
    reading_models,
    refusals,
    settings_of,
    summaries,
)
from specmesh.inference.grammar.grammars import Grammars
from specmesh.inference.model import LanguageModel, ModelNotLoadable
from specmesh.inference.service.features import DRAFTING
from specmesh.inference.service.prefixes import PrefixResolver
from specmesh.inference.service.service import (
    MODEL_SERVICE,
    REVISION,
    InferenceService,
    InferenceSettings,
    check_named,
)
from specmesh.mesh.v1alpha1 import drafter_pb2, drafter_pb2_grpc
from specmesh.serving.process.command_line import parse
from specmesh.serving.process.server import serve
from specmesh.serving.process.server_loop import run


class DrafterBackend(BaseSettings):
    """The setting that other settings depend on; it is in a base class so that it is read first."""

    backend: Annotated[str, named("drafter")] = Field(
        "transformers", description=f"engine that drafts: {summaries('drafter')}"
    )


class DrafterSettings(InferenceSettings, *settings_of("drafter"), DrafterBackend):  # type: ignore[misc]
    """The drafter: serves a cheap model, which drafts ahead of the target."""

    model_config = SettingsConfigDict(env_prefix="SPECMESH_DRAFTER__")

    model: str = Field(
        "",
        validate_default=True,
        description=f"folder or Hugging Face id; for backends {reading_models('drafter')}",
    )
    revision: str = Field("", description=REVISION)
    _check_model = field_validator("model")(check_named)


class DrafterService(InferenceService):
    """The ``Service`` of the drafter role."""

    role = "drafter"
    features = DRAFTING

    def __init__(self, settings: DrafterSettings) -> None:
        super().__init__(settings, backends()[settings.backend])
        self._drafter = settings

    @property
    def names(self) -> Sequence[str]:
        """Full names of the gRPC services."""
        return (drafter_pb2.DESCRIPTOR.services_by_name["DrafterService"].full_name, MODEL_SERVICE)

    def load(self) -> LanguageModel:
        """Load the drafter."""
        settings, backend = self._drafter, self.backend
        assert backend.load_drafter is not None
        for refusal in refusals(backend, self.role, settings):
            raise ModelNotLoadable(refusal)
        check_there(backend, settings.model)
        try:
            return backend.load_drafter(settings)
        except ModelNotLoadable as error:
            if backend.reads != "model" or Path(settings.model).exists():
                raise
            told = str(error).removesuffix(".")
            raise ModelNotLoadable(f"{told}; {_needing_no_model()} need no model") from error

    def add_servicer(
        self,
        server: grpc.aio.Server,
        model: LanguageModel,
        prefixes: PrefixResolver,
        grammars: Grammars | None,
    ) -> None:
        """Add DrafterService."""
        servicer = DrafterServicer(model, self._engine, prefixes, grammars)
        drafter_pb2_grpc.add_DrafterServiceServicer_to_server(servicer, server)


def _needing_no_model() -> str:
    *others, last = (each for each in names("drafter") if backends()[each].reads == "tokenizer")
    return f"the drafters {', '.join(others)} and {last}"


if __name__ == "__main__":
    settings = parse(DrafterSettings, sys.argv[1:], "specmesh serve drafter")
    sys.exit(run(serve(settings, DrafterService(settings))))

"""The drafter process: ``specmesh serve drafter``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import grpc.aio
from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import SettingsConfigDict

from specmesh.drafter.backends import Backend, load
from specmesh.drafter.servicer import DrafterServicer
from specmesh.inference.model import LanguageModel
from specmesh.inference.models.simulated.settings import SimulatedDrafterSettings
from specmesh.inference.models.vllm.settings import VllmSettings
from specmesh.inference.service.features import DRAFTING
from specmesh.inference.service.prefixes import PrefixResolver
from specmesh.inference.service.service import (
    FOLDER_OR_ID,
    MODEL_SERVICE,
    REVISION,
    InferenceService,
    InferenceSettings,
    check_named,
)
from specmesh.mesh.v1alpha1 import drafter_pb2, drafter_pb2_grpc
from specmesh.serving.process.command_line import parse
from specmesh.serving.process.event_loop import run
from specmesh.serving.process.server import serve


class DrafterSettings(InferenceSettings, SimulatedDrafterSettings, VllmSettings):
    """Serves a cheap model, which guesses ahead of the target."""

    model_config = SettingsConfigDict(env_prefix="SPECMESH_DRAFTER__")

    backend: Backend = Field(
        "transformers",
        description="what guesses; 'vllm' is the engine of that name, 'simulated' waits and says "
        "known tokens",
    )
    model: str = Field(
        "",
        validate_default=True,
        description="folder or Hugging Face id; for transformers and vllm",
    )
    revision: str = Field("", description=REVISION)
    tokenizer: str = Field(
        "",
        validate_default=True,
        description="folder or Hugging Face id of the target's tokenizer; other backends",
    )
    corpus: str = Field(
        "",
        validate_default=True,
        description="folder of text to count n-grams in, or 'stdlib': the part of the Python "
        "standard library that the shipped models were trained on",
    )
    ngram_order: int = Field(3, ge=1, le=5, description="1 unigram, 2 bigram and so on")

    _check_model = field_validator("model")(check_named)

    @field_validator("tokenizer")
    @classmethod
    def _check_tokenizer(cls, name: str, info: ValidationInfo) -> str:
        if not name and info.data.get("backend") in {"ngram", "prompt-lookup", "random"}:
            raise ValueError(f"must name the target's tokenizer, {FOLDER_OR_ID}")
        return name

    @field_validator("corpus")
    @classmethod
    def _check_corpus(cls, name: str, info: ValidationInfo) -> str:
        if not name and info.data.get("backend") == "ngram":
            raise ValueError("must name a folder of text, or 'stdlib'")
        return name


class DrafterService(InferenceService):
    """The ``Service`` of the drafter role."""

    role = "drafter"
    features = DRAFTING

    def __init__(self, settings: DrafterSettings) -> None:
        super().__init__(settings)
        self._drafter = settings

    @property
    def names(self) -> Sequence[str]:
        """Full names of the gRPC services."""
        return (drafter_pb2.DESCRIPTOR.services_by_name["DrafterService"].full_name, MODEL_SERVICE)

    def load(self) -> LanguageModel:
        """Load the drafter."""
        return load(
            self._drafter.backend,
            model=self._drafter.model,
            revision=self._drafter.revision or None,
            tokenizer=self._drafter.tokenizer,
            corpus=self._drafter.corpus,
            ngram_order=self._drafter.ngram_order,
            dtype=self._drafter.dtype,
            device=self._drafter.device,
            cache_bytes=self._drafter.cache_bytes,
            num_threads=self._drafter.num_threads,
            units=self._drafter.unit_specs,
            simulated=self._drafter,
            vllm=self._drafter,
        )

    def add_servicer(
        self, server: grpc.aio.Server, model: LanguageModel, prefixes: PrefixResolver
    ) -> None:
        """Add DrafterService."""
        servicer = DrafterServicer(model, self._engine, prefixes)
        drafter_pb2_grpc.add_DrafterServiceServicer_to_server(servicer, server)


if __name__ == "__main__":
    settings = parse(DrafterSettings, sys.argv[1:], "specmesh serve drafter")
    sys.exit(run(serve(settings, DrafterService(settings))))

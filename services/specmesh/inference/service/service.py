"""The base of drafter and verifier processes: settings, and start and stop of model and engine."""

from __future__ import annotations

import asyncio
import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

import grpc.aio
from pydantic import Field, ValidationInfo

from specmesh.inference.backends.registry import Backend, backends
from specmesh.inference.engine.engine import Engine
from specmesh.inference.engine.engine_metrics import observe
from specmesh.inference.grammar.grammars import Grammars
from specmesh.inference.model import LanguageModel, ModelNotLoadable
from specmesh.inference.reasons import reason_of
from specmesh.inference.service.model_servicer import ModelServicer
from specmesh.inference.service.prefixes import PrefixResolver
from specmesh.inference.service.warm_up import forward_times, warm_up
from specmesh.mesh.v1alpha1 import model_service_pb2, model_service_pb2_grpc
from specmesh.serving.identity.expiry import reported_files
from specmesh.serving.settings import RedisSettings, ServerSettings
from specmesh.serving.startup import CannotStart
from specmesh.serving.store.session_store import SessionStore
from specmesh.v1.model_pb2 import MODEL_FEATURE_GRAMMARS, ModelFeature

log = logging.getLogger(__name__)

REVISION = (
    "branch, tag or commit of the Hugging Face id from which to read all files; by default "
    "its main branch"
)

FOLDER_OR_ID = "a folder or a Hugging Face id"


def check_named(model: str, info: ValidationInfo) -> str:
    """Refuse an empty model name if the backend has to load a model."""
    backend = backends().get(info.data.get("backend", ""))
    if not model and backend is not None and backend.reads == "model":
        raise ValueError(f"must name a model, {FOLDER_OR_ID}")
    return model


class InferenceSettings(ServerSettings, RedisSettings):
    """Settings of every process with a model."""

    help_panel: ClassVar[str] = "Engine"

    threads: int = Field(1, ge=1, description="threads of a forward pass")
    device: str = Field("cpu", description="torch device that holds the model")
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        "float32", description="data type of weights and activations"
    )
    cache_bytes: int | None = Field(
        None,
        ge=1,
        description="memory for the KV of running calls and of recent prefixes; by default 1 GiB, "
        "on a GPU four fifths of what the model leaves free; under torchrun, per rank",
    )
    max_queue: int = Field(
        256, ge=1, description="calls that may wait; any further call is refused immediately"
    )
    max_forward_seconds: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="a forward pass that lasts longer counts as stuck, and the process exits with "
        "status 1; by default a minute or 50 times the longest pass before, whichever is longer",
    )


class InferenceService(ABC):
    """A model, the engine that runs it, and the services in front of them."""

    role: str
    features: ClassVar[Sequence[ModelFeature.ValueType]] = ()
    """Abilities of the role's servicer that peers must know of."""

    def __init__(self, settings: InferenceSettings, backend: Backend) -> None:
        self.backend = backend
        self._settings = settings
        self._num_threads = backend.threads(settings)
        self._grammars: Grammars | None = None
        self._redis_certificates = reported_files((settings.redis_ca, settings.redis_cert))
        self._store = (
            SessionStore.from_url(
                settings.redis_url, tls=settings.redis_tls, prefix=settings.redis_prefix
            )
            if settings.redis_url is not None
            else None
        )

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """Full names of the gRPC services."""

    @abstractmethod
    def load(self) -> LanguageModel:
        """Load the model, which may take long; runs on the engine's thread."""

    @abstractmethod
    def add_servicer(
        self,
        server: grpc.aio.Server,
        model: LanguageModel,
        prefixes: PrefixResolver,
        grammars: Grammars | None,
    ) -> None:
        """Add the role's own servicer, which answers with ``model``, and with ``grammars`` if it
        can follow any."""

    async def start(self) -> None:
        """Load the model and warm it up, so that the first call is as fast as the next."""
        log.info("loading the model")
        self._engine = Engine(
            self._load_warm, self._settings.max_queue, self._settings.max_forward_seconds
        )
        try:
            self._model = await self._engine.ready()
        except ModelNotLoadable as error:
            raise CannotStart(str(error)) from error
        except ModuleNotFoundError as error:  # such as torch, which not every backend needs
            advice = "pip install 'specmesh[inference]'"
            raise CannotStart(f"{error.name} is not installed: {advice}") from error
        except Exception as error:
            log.debug("loading failed", exc_info=True)
            raise CannotStart(f"loading the model failed: {reason_of(error)}") from error
        observe(self._engine, self._model.pool)
        description = self._model.description
        self._grammars = await asyncio.to_thread(Grammars.of, description)
        log.info(
            "model ready",
            extra={
                "model": description.name,
                "parameters": description.num_parameters,
                "weights_digest": description.weights_digest,
                "dtype": description.dtype,
            },
        )

    def register(self, server: grpc.aio.Server) -> None:
        """Add the servicers of the role and of ModelService."""
        prefixes = PrefixResolver(self._model, self._store)
        self.add_servicer(server, self._model, prefixes, self._grammars)
        settings = self._settings
        features = [*self.features, *([] if self._grammars is None else [MODEL_FEATURE_GRAMMARS])]
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(
            ModelServicer(
                *(self._model, features, settings.name, self._num_threads, self._forward_times)
            ),
            server,
        )

    @property
    def is_broken(self) -> bool:
        """True once no call will be answered any more."""
        return hasattr(self, "_engine") and self._engine.is_broken

    @property
    def hangs(self) -> bool:
        """True while the model is loading, on a thread that can't be stopped."""
        return hasattr(self, "_engine") and self._engine.is_loading

    async def broken(self) -> str:
        """Return the reason, once the engine is broken."""
        return await self._engine.broken()

    async def stop(self) -> None:
        """End the engine's thread and the connection to Redis."""
        if hasattr(self, "_engine"):
            await asyncio.to_thread(self._engine.stop)
        if self._grammars is not None:
            self._grammars.close()
        if self._store is not None:
            await self._store.aclose()

    def _load_warm(self) -> LanguageModel:
        model = self.load()
        self._use_threads()
        warm_up(model)
        self._forward_times = forward_times(model)
        return model

    def _use_threads(self) -> None:
        """Set torch's number of threads; on the engine's thread, since the setting is per
        thread."""
        if torch := sys.modules.get("torch"):  # not imported for drafters without a network
            torch.set_num_threads(self._num_threads)


MODEL_SERVICE = model_service_pb2.DESCRIPTOR.services_by_name["ModelService"].full_name

"""GET /v1/models and /v1/models/{id}."""

from __future__ import annotations

import time

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from specmesh.client import ServedModel
from specmesh.gateway.http.hang_up import unless_gone
from specmesh.gateway.model_names import ModelNames
from specmesh.gateway.responses.envelope import Json
from specmesh.gateway.routes.reception import Reception


class ModelRoutes:
    """The handlers of the paths that describe models."""

    def __init__(self, reception: Reception, names: ModelNames) -> None:
        self._reception = reception
        self._names = names
        self._began = int(time.time())

    async def list(self, request: HttpRequest) -> Response:
        """GET /v1/models."""
        models = await self._models(request)
        entries = [
            self._entry(name, model)
            for model in models
            for name in self._names.of(model, is_only=len(models) == 1)
        ]
        return JSONResponse({"object": "list", "data": entries})

    async def retrieve(self, request: HttpRequest) -> Response:
        """GET /v1/models/{id}."""
        name = request.path_params["model"]
        model = self._names.find(await self._models(request), name)
        return JSONResponse(self._entry(name, model))

    async def _models(self, request: HttpRequest) -> tuple[ServedModel, ...]:
        caller = await self._reception.admit(request)
        return await unless_gone(request, caller.client.list_models())

    def _entry(self, name: str, model: ServedModel) -> Json:
        described = {
            "context_tokens": model.target.context_tokens,
            "has_chat_template": model.has_chat_template,
            "tool_format": model.tool_format,
            "reasoning_format": model.reasoning_format,
            "default_strategy": model.default_strategy,
            "strategies": [each.name for each in model.strategies if each.available],
        }
        return {
            "id": name,
            "object": "model",
            "created": self._began,
            "owned_by": "specmesh",
            # vLLM's fields: clients read the length of the context there.
            "root": model.target.name,
            "parent": None,
            "max_model_len": model.target.context_tokens,
            "specmesh": described,
        }

"""The names under which the mesh's model can be asked for."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import TypeVar

from specmesh.client import ServedModel
from specmesh.gateway.errors import ApiError
from specmesh.gateway.requests.request import Request

R = TypeVar("R", bound=Request)


class ModelNames:
    """The model's own name and ``further`` ones, which the mesh itself does not know."""

    def __init__(self, further: Sequence[str]) -> None:
        self._further = further

    def in_mesh(self, name: str) -> str:
        """Return the mesh's name for what a caller calls ``name``: none at all, which takes the
        only model, if it is one of the further names."""
        return "" if name in self._further else name

    def translated(self, asked: R) -> R:
        """Return a request under the mesh's name for its model."""
        return asked.model_copy(update={"model": self.in_mesh(asked.model)})

    def of(self, model: ServedModel, *, is_only: bool) -> list[str]:
        """Return the names of ``model``; only the one model of a mesh has further ones."""
        return list(dict.fromkeys([model.target.name, *(self._further if is_only else ())]))

    def find(self, models: Sequence[ServedModel], name: str) -> ServedModel:
        """Return the model that callers call ``name``. Raises ``ApiError`` 404."""
        for model in models:
            if name in self.of(model, is_only=len(models) == 1):
                return model
        message = f"there is no model {name[:64]!r}"
        raise ApiError(HTTPStatus.NOT_FOUND, message, param="model", code="model_not_found")

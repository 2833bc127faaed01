"""GET /healthz, /health and /version."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from specmesh.gateway.mesh import KnownOrchestrators
from specmesh.gateway.routes.reception import Reception
from specmesh.serving.telemetry.pipeline import package_version


class StatusRoutes:
    """The handlers of the paths about the gateway itself."""

    def __init__(self, reception: Reception, mesh: KnownOrchestrators) -> None:
        self._reception = reception
        self._mesh = mesh

    async def health(self, request: HttpRequest) -> Response:  # noqa: ARG002
        """GET /healthz."""
        if await self._mesh.is_there():
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "no orchestrator answers"}, HTTPStatus.SERVICE_UNAVAILABLE)

    async def version(self, request: HttpRequest) -> Response:
        """GET /version."""
        await self._reception.admit(request)
        return JSONResponse({"version": package_version()})

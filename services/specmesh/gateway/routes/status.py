"""GET /healthz, /health and /version."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from specmesh.gateway.probe import Probe
from specmesh.gateway.routes.reception import Reception
from specmesh.serving.telemetry.pipeline import package_version


class StatusRoutes:
    """The handlers of the paths about the gateway itself."""

    def __init__(self, reception: Reception, probe: Probe) -> None:
        self._reception = reception
        self._probe = probe

    async def health(self, request: HttpRequest) -> Response:  # noqa: ARG002
        """GET /healthz."""
        if await self._probe.serves():
            return JSONResponse({"status": "ok"})
        told = {"status": "no orchestrator serves this gateway"}
        return JSONResponse(told, HTTPStatus.SERVICE_UNAVAILABLE)

    async def version(self, request: HttpRequest) -> Response:
        """GET /version."""
        await self._reception.admit(request)
        return JSONResponse({"version": package_version()})

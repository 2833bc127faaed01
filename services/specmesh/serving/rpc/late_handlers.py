"""Servicers that join a server after it has begun to listen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc.aio

from specmesh.serving.errors import UnavailableStatus
from specmesh.serving.rpc.interceptors import Refusal

_STARTING = Refusal(UnavailableStatus("STARTING", "this replica is still loading its model"))


class LateHandlers(grpc.GenericRpcHandler):
    """Takes handlers in place of a server in ``add_*_to_server``: gRPC accepts none once it
    listens, but health must be answered long before a model is loaded."""

    def __init__(self) -> None:
        self._handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        """Take the handlers of one service, by method."""
        for method, handler in method_handlers.items():
            self._handlers[f"/{service_name}/{method}"] = handler

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Ignored: generated code passes the very same handlers here, without their names."""

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """The handler of a method, None if there is none."""
        if not self._handlers:
            return _STARTING
        return self._handlers.get(handler_call_details.method)

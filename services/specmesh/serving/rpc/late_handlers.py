"""Registration of servicers on a server that already listens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import grpc.aio

from specmesh.serving.errors import ServiceError, UnavailableStatus
from specmesh.serving.rpc.reported_errors import Refusal


def still_loading() -> ServiceError:
    """Return the refusal of calls to a replica that is starting."""
    return UnavailableStatus("STARTING", "this replica is still loading its model")


class LateHandlers(grpc.GenericRpcHandler):
    """Stands in for a server in ``add_*_to_server``. A gRPC server accepts no handlers once it
    listens, but health must be answered long before a model is loaded. Until handlers are
    registered, calls end with what ``refusal`` returns."""

    def __init__(self, refusal: Callable[[], ServiceError] = still_loading) -> None:
        self._refusal = refusal
        self._handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        """Add the handlers of one service, by method."""
        for method, handler in method_handlers.items():
            self._handlers[f"/{service_name}/{method}"] = handler

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Ignore the handlers: generated code passes the same ones here, without their names."""

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Return the handler of a method, None if it has none; refuse all calls until handlers are
        registered."""
        if not self._handlers:
            return Refusal(self._refusal())
        return self._handlers.get(handler_call_details.method)

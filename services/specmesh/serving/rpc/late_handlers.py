"""Registration of servicers on a server that already listens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import grpc.aio
from google.protobuf import descriptor_pool

from specmesh.serving.errors import ServiceError, UnavailableStatus
from specmesh.serving.rpc.reported_errors import EarlyRefusal, Refusal


def still_loading(method: str) -> ServiceError:  # noqa: ARG001
    """Return the refusal of calls to a replica that is starting."""
    return UnavailableStatus("STARTING", "this replica is still loading its model")


class LateHandlers(grpc.GenericRpcHandler):
    """Stands in for a server in ``add_*_to_server``. A gRPC server accepts no handlers once it
    listens, but health must be answered long before a model is loaded. Until handlers are
    registered, calls end with what ``refusal`` returns for the full name of a method of the
    services ``names``, or for "" in place of other methods."""

    def __init__(
        self,
        refusal: Callable[[str], ServiceError] = still_loading,
        names: Sequence[str] = (),
    ) -> None:
        self._refusal = refusal
        self._handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        services = map(descriptor_pool.Default().FindServiceByName, names)
        self._methods = {
            f"/{service.full_name}/{method.name}"
            for service in services
            for method in service.methods
        }

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
        method = handler_call_details.method
        if self._handlers:
            return self._handlers.get(method)
        if method in self._methods:
            return EarlyRefusal(partial(self._refusal, method.removeprefix("/")))
        return Refusal(self._refusal(""))

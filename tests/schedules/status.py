"""How a call ends."""

from __future__ import annotations

from dataclasses import dataclass

import grpc
import grpc.aio

from specmesh.decoding.errors import InvalidField
from specmesh.serving.errors import ServiceError, to_status


@dataclass(frozen=True, slots=True)
class Status:
    """As it travels."""

    code: grpc.StatusCode
    details: str = ""
    trailing: tuple[tuple[str, str | bytes], ...] = ()

    def error(self) -> grpc.aio.AioRpcError:
        """What the client's end raises."""
        trailing = grpc.aio.Metadata(*self.trailing)
        return grpc.aio.AioRpcError(self.code, grpc.aio.Metadata(), trailing, self.details)


OK = Status(grpc.StatusCode.OK)
GONE = Status(grpc.StatusCode.UNAVAILABLE, "the connection is gone")
LATE = Status(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
CANCELLED = Status(grpc.StatusCode.CANCELLED, "Locally cancelled by application!")


def refusal(error: ServiceError | InvalidField) -> Status:
    """The status that tells ``error``."""
    status = to_status(error)
    return Status(status.code, status.details, tuple(status.trailing_metadata))

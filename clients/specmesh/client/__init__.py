"""The client SDK: asynchronous, typed, with streams that survive a lost orchestrator.

::

    async with Client("127.0.0.1:50051") as client:
        async for chunk in client.generate("def fibonacci(", max_tokens=64):
            print(chunk.text, end="")

Reading order: ``client`` (the calls), ``stream`` (an answer), ``resumable`` (what
happens when its call breaks), ``status`` and ``errors``.
"""

from specmesh.client.answers import (
    Chunk,
    FinishReason,
    GenerationResult,
    GenerationStats,
    Model,
    ServedModel,
)
from specmesh.client.client import Client
from specmesh.client.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    FieldViolation,
    Internal,
    InvalidRequest,
    NotFound,
    Overloaded,
    SessionTaken,
    SpecmeshError,
    Unavailable,
)
from specmesh.client.requests import AcceptanceMode, Filter
from specmesh.client.stream import GenerationStream
from specmesh.client.timeouts import Timeouts

__all__ = [
    "AcceptanceMode",
    "Chunk",
    "Client",
    "DeadlineExceeded",
    "FailedPrecondition",
    "FieldViolation",
    "Filter",
    "FinishReason",
    "GenerationResult",
    "GenerationStats",
    "GenerationStream",
    "Internal",
    "InvalidRequest",
    "Model",
    "NotFound",
    "Overloaded",
    "ServedModel",
    "SessionTaken",
    "SpecmeshError",
    "Timeouts",
    "Unavailable",
]

"""The messages between a fleet and its workers, sent over pipes."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import dataclass, field
from typing import IO

from specmesh.load.generators.generator import Chunks, WorkloadPart
from specmesh.load.transports.observation import Observation
from specmesh.load.transports.transport import ServerAddress
from specmesh.load.workload.plan import Workload

LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True)
class Assignment:
    """The work of a worker, which answers Ready or WorkerBroken."""

    workload: Workload
    door: ServerAddress
    part: WorkloadPart


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker is connected."""


@dataclass(frozen=True, slots=True)
class Start:
    """The order to begin when the monotonic clock shows ``epoch_s``."""

    epoch_s: float


@dataclass(frozen=True, slots=True)
class Stop:
    """The order to cancel the requests under way, and to send the result."""


@dataclass(frozen=True, slots=True)
class WorkerBroken:
    """The worker can't go on; ``reason`` is that of a ``RequestFailed``."""

    reason: str
    message: str


@dataclass(slots=True)
class WorkerProgress:
    """The events since the previous message, for the live view. ``at_s`` counts from the start;
    ``cpu_s`` is the CPU time of the process so far."""

    at_s: float
    cpu_s: float
    num_ended: int = 0
    num_tokens: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    num_under_way: int = 0
    ttfts_s: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class WorkerResult:
    """The last message: everything that the worker observed."""

    observations: list[Observation]
    chunks: Chunks


Message = Assignment | Ready | Start | Stop | WorkerBroken | WorkerProgress | WorkerResult


def packed(message: Message) -> bytes:
    """Return ``message`` as its length and a pickle, safe because both ends are our own
    processes."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def unpacked(data: bytes) -> Message:
    """Return the message in ``data``, which has no length before it."""
    message: Message = pickle.loads(data)  # noqa: S301 - written by our own process
    return message


def read(stream: IO[bytes]) -> Message | None:
    """Return the next message; None at the end of the stream."""
    length = stream.read(LENGTH_BYTES)
    if len(length) < LENGTH_BYTES:
        return None
    return unpacked(stream.read(int.from_bytes(length, "big")))
